#pragma once

#include <ccl/detail/base/word_set.hpp>
#include <ccl/detail/peer/work.hpp>

namespace ccl::detail {

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

  /// Makes a rank a head, of the next slice.
  void add_head(int rank) {
    heads.insert(rank);
    if (rank == this->peers.rank) slice = slices;
    ++slices;
  }
};

}  // namespace ccl::detail
