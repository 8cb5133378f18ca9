#pragma once

#include <ccl/algo/rank_counts.hpp>
#include <ccl/types/word.hpp>

namespace ccl::detail {

/// Addresses of the scratch memory of every peer. Each protocol has its own region, because a flag
/// must never be read from the data of another protocol. A view.
struct PeerView {
  static constexpr int max_ranks = max_view_ranks;
  /// Of each rank if there are at most `max_unrolled_ranks`: 2 * half_packets each; flags start as
  /// 0. Addresses in the arguments of a kernel cost no load.
  Packet* scratch[max_unrolled_ranks] = {};
  // Constant: a slow peer may still read the half of a smaller launch.
  Index half_packets = 0;
  int rank = 0, ranks = 1;
  Packet* const* table = nullptr;  // of each rank of a larger view, in this rank's memory

  /// Returns the scratch of a rank in a kernel for up to `Most` ranks.
  template <int Most = max_unrolled_ranks>
  CCL_HD Packet* scratch_of(int r) const {
    if constexpr (Most > max_unrolled_ranks) {
      return table[r];
    } else {
      return scratch[r];
    }
  }
};

/// Count of launches. Every block reads its own copy, so that no block waits for another. The
/// blocks of a launch also update the copies of absent blocks. All ranks make the same launches,
/// and none for an empty message.
struct Epoch {
  Word* copies = nullptr;  // in this rank's memory; all equal between launches
  int count = 0;           // maximum blocks of a launch
};

}  // namespace ccl::detail
