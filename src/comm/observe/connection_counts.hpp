#pragma once

#include <ccl/types/word.hpp>

#include <atomic>

namespace ccl::detail {

/// Connections of a rank's communicator: one for each composition, peer and direction. Any thread.
struct ConnectionCounts {
  std::atomic<int> open{0};
  std::atomic<Index> bytes{0};  // of the slots of these that lie on this rank
  std::atomic<Word> made{0};
  std::atomic<Word> closed{0};  // because they were idle
};

}  // namespace ccl::detail
