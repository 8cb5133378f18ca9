#pragma once

#include <ccl/detail/base/word_set.hpp>
#include <ccl/detail/lanes/window_place.hpp>
#include <ccl/detail/peer/work.hpp>
#include <ccl/types/macros.hpp>
#include <ccl/types/operations.hpp>

CCL_ANY_SPACE_BEGIN

namespace ccl::detail {

/// Buffer of the user in a window whose memory a multicast reaches at all ranks. A view.
struct BoundBuffer {
  /// `WindowPlaceWord`: ranks use their windows if all have the same.
  Word place = WindowPlaceWord::in_no_window;
  PeerView windows;  // begin of the window at each rank, by a table; without one by switches
  Word all = 0;      // multicast address of the window; 0: the multicast is emulated
  Index packet = 0;  // of the buffer, counted from the begin of the window
};

/// Arguments of one launch over multicast memory. The scratch of all ranks, with the mailboxes
/// behind it, is one multicast object: a byte has the same offset at every rank.
template <class R>
struct MulticastWork : PeerWork<R> {
  using PeerWork<R>::PeerWork;

  /// Multicast address of the scratch. Only `multimem` instructions may access it, so it is no
  /// pointer. 0: the multicast is emulated.
  Word all = 0;
  /// Ranks that reduce slices of an all-reduce: the i-th of them owns slice i. The same on all
  /// ranks.
  WordSet<max_view_ranks> heads;
  int slices = 0;  // number of heads
  int slice = -1;  // slice of this rank; -1: it is no head
  // Members for calls whose buffers may lie in windows. See `WindowBuffers`.
  BoundBuffer send, recv;
  Index part = 0;         // elements, of the message or of a share, that are copied at once
  Index part_share = 0;   // elements of a share of a part
  Index row_tiles = 0;    // tiles of a row of the scratch
  Word* taken = nullptr;  // `TakenWay` of the launch, in this rank's memory; null: not kept

  /// Makes a rank a head, of the next slice.
  void add_head(int rank) {
    heads.insert(rank);
    if (rank == this->peers.rank) slice = slices;
    ++slices;
  }
};

/// Shares of an operation over multicast memory, and boxes of each half of the scratch. A box has a
/// row for each share. `OfHeads`: heads own the shares of all operations.
template <class Op, bool OfHeads>
struct MulticastShape {
  static constexpr bool sums_for_all = is_one_of<Op, AllReduce>;  // a second box for the sums
  static constexpr int boxes = sums_for_all ? 2 : 1;

  template <class R>
  CCL_HD static constexpr int shares(const MulticastWork<R>& work) {
    if constexpr (sums_for_all || OfHeads) return work.slices;
    return is_one_of<Op, AllGather, ReduceScatter> ? work.peers.ranks : 1;
  }
  /// Returns the share that this rank reduces or gives; -1: none.
  template <class R>
  CCL_HD static constexpr int own(const MulticastWork<R>& work) {
    if constexpr (sums_for_all || OfHeads) return work.slice;
    return is_one_of<Op, AllGather, ReduceScatter> ? work.peers.rank : 0;
  }
};

/// Way that the buffers of a launch took, as bits of a word. 0: the launch did not ask.
struct TakenWay {
  static constexpr Word asked = 1, loaded_windows = 2, stored_windows = 4;
};

}  // namespace ccl::detail

CCL_ANY_SPACE_END
