#pragma once

#include <ccl/detail/exchange/mailbox.hpp>
#include <ccl/detail/peer/work.hpp>
#include <ccl/types/macros.hpp>
#include <ccl/types/operations.hpp>

CCL_ANY_SPACE_BEGIN

namespace ccl::detail {

/// Shares and slots of a reduction that reads the peers' buffers.
template <class Op, class T>
struct DirectShares {
  /// True if all ranks receive the sums.
  static constexpr bool sums_for_all = cuda::std::is_same_v<Op, AllReduce>;
  /// True if the root receives the sums.
  static constexpr bool sums_for_root = cuda::std::is_same_v<Op, Reduce>;
  static constexpr bool sums_travel = sums_for_all || sums_for_root;
  /// Kinds of slots that a peer has in a rank's scratch: for data, and for sums.
  static constexpr int kinds = sums_travel ? 2 : 1;
  /// Granularity of shares and slices in elements: multiples of it are multiples of 128 bytes.
  static constexpr int grain = [] {
    int n = 128;
    while (n > 1 && (n / 2) * int(sizeof(T)) % 128 == 0) n /= 2;
    return n;
  }();
  /// Returns the number of shares. The root of a reduction has none, since all sums reach it. Of
  /// two ranks the root has the only one, so that half as many bytes cross the wire.
  CCL_HD static constexpr int many(int ranks) { return sums_for_root ? ranks - 1 : ranks; }
  /// Returns the number of a rank's share, or -1 if it has none.
  CCL_HD static constexpr int number(int rank, int root, int ranks) {
    if constexpr (sums_for_root) {
      if (ranks == 2) return rank == root ? 0 : -1;
      return rank == root ? -1 : rank - (rank > root ? 1 : 0);
    }
    return rank;
  }
  /// Returns the elements of the largest share.
  CCL_HD static constexpr Index largest(const Layout& layout, int ranks) {
    if (!layout.split) return layout.count;
    return div_up<Index>(div_up<Index>(layout.count, many(ranks)), grain) * grain;
  }
  /// Returns the elements that a slot holds, a multiple of the grain. 0: the scratch is too small.
  static constexpr Index slot_elements(const PeerView& peers, int rings) {
    constexpr Index least = Index{sizeof(T)} * grain;
    return Rings::slot_bytes(peers, rings * kinds) / least * grain;
  }
  /// Returns the rings of launches of `blocks` blocks: as many as the scratch has slots for. 0: it
  /// has none.
  static constexpr int max_rings(const PeerView& peers, int blocks) {
    int rings = blocks < Mailbox::max_rings ? blocks : Mailbox::max_rings;
    while (rings > 0 && slot_elements(peers, rings) == 0) rings /= 2;
    return rings;
  }
};

/// Arguments of one launch of a reduction that reads the peers' buffers.
template <class R>
struct DirectWork : PeerWork<R> {
  using PeerWork<R>::PeerWork;

  const Word* table = nullptr;  // see `PeerExchangeWork`
  // `RemoteBuffer` references to the buffers of this rank, posted to the peers. An operation whose
  // sums stay at this rank posts no reference to the output.
  Word where_input = 0, where_output = 0;
  int max_rings = 1;  // the same on all ranks
  // Members that `DirectBody::prepare` sets, the same on all ranks:
  int rings = 1;    // parts of each share; a group works on one at a time
  Index slice = 0;  // elements of a share that a ring moves at once
};

}  // namespace ccl::detail

CCL_ANY_SPACE_END
