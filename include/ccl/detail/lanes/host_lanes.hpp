#pragma once

#include <ccl/detail/lanes/host_memory.hpp>

namespace ccl::detail {

/// Group of one CPU thread.
struct SoloLane {
  static constexpr int width = 1;
  using Memory = HostMemory;
  int rank() const { return 0; }
  void sync() const {}
  bool all(bool vote) const { return vote; }
  float max(float value) const { return value; }
  Word from(Word word, int) const { return word; }
  float block_sum(float value) const { return value; }
  float block_max(float value) const { return value; }
};
static_assert(ReducingLanes<SoloLane>);

}  // namespace ccl::detail
