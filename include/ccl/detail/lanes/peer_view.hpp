#pragma once

#include <ccl/algo/rank_counts.hpp>
#include <ccl/types/macros.hpp>
#include <ccl/types/word.hpp>

CCL_ANY_SPACE_BEGIN

namespace ccl::detail {

/// Addresses of the scratch memory of every peer. Each protocol has its own region, because a flag
/// must never be read from the data of another protocol. A view.
struct PeerView {
  static constexpr int max_ranks = max_view_ranks;
  /// Scratch of each rank, 2 * half_packets, if there are at most `max_unrolled_ranks`; flags start
  /// as 0. Addresses in the arguments of a kernel cost no load.
  ///
  /// In a larger view the first is the address of a table of them, in this rank's memory. Kernels
  /// of few ranks thus have the same arguments: another member changed their registers.
  Packet* scratch[max_unrolled_ranks] = {};
  // Constant: a slow peer may still read the half of a smaller launch.
  Index half_packets = 0;
  int rank = 0, ranks = 1;

  /// Returns the scratch of a rank in a kernel for up to `Most` ranks.
  template <int Most = max_unrolled_ranks>
  CCL_HD Packet* scratch_of(int r) const {
    if constexpr (Most > max_unrolled_ranks) {
      return reinterpret_cast<Packet* const*>(scratch[0])[r];
    } else {
      return scratch[r];
    }
  }
  /// Sets the table of a view of more than `max_unrolled_ranks`.
  void set_table(Packet* const* table) {
    scratch[0] = reinterpret_cast<Packet*>(const_cast<Packet**>(table));
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

CCL_ANY_SPACE_END
