#pragma once

#include <ccl/types/result.hpp>

#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

#include "comm/state.hpp"

namespace ccl::detail {

/// Memory of every CPU rank of a host, which all of them address: directly in one process, by a
/// mapping between processes. A rank's memory lives until the last rank that addresses it lets go.
class HostScratch {
 public:
  /// Makes `bytes` zeroed bytes for each rank. `number` is that of the composition `name`. Succeeds
  /// on all ranks or fails on all. Collective; the caller holds the bootstrap, and `so_far` is the
  /// result of this rank's preparation.
  static Result<HostScratch> map(CommState& state, int number, std::string_view name,
                                 std::size_t bytes, const Result<void>& so_far);

  std::byte* at(int rank) const { return at_[std::size_t(rank)]; }
  /// Owner of the addresses.
  std::shared_ptr<void> owner() const { return owner_; }

 private:
  struct Maker;
  std::vector<std::byte*> at_;
  std::shared_ptr<void> owner_;
};

}  // namespace ccl::detail
