#pragma once

#include <ccl/algo/rank_counts.hpp>
#include <ccl/types/word.hpp>

namespace ccl::detail {

/// Plain addresses of every peer's scratch memory. One region per protocol: a flag of one must
/// never be read where another wrote data. A view.
struct PeerView {
  static constexpr int max_ranks = max_view_ranks;
  Packet* scratch[max_ranks] = {};  // 2 * half_packets each; flags start as 0
  // Fixed for life: a slow peer may still read the half of a smaller launch.
  Index half_packets = 0;
  int rank = 0, ranks = 1;
};

/// Counts launches. Every crew reads its own copy, so that no crew waits for another; who takes
/// part refreshes the copies of those who do not, so that launches of any shape agree. All ranks
/// make the same launches, and none of an empty message: who sends nothing holds nobody back.
struct Epoch {
  Word* copies = nullptr;  // in this rank's memory, all equal between launches
  int count = 0;           // no launch has more crews
};

}  // namespace ccl::detail
