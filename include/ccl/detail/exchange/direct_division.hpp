#pragma once

#include <ccl/detail/exchange/mailbox.hpp>
#include <ccl/detail/lanes/bulk_copy.hpp>
#include <ccl/types/macros.hpp>

CCL_ANY_SPACE_BEGIN

namespace ccl::detail {

/// Division of the messages of a launch of `DirectExchange`, on the host.
template <int Most>
struct DirectDivision {
  using Work = BasicPeerExchangeWork<Most>;

  /// Returns the maximum bytes of one message in a launch: 1 GiB between two ranks, 512 MiB for all
  /// peers of more together, or 4 MiB per ring if that is more. 0 if the scratch has no slot for
  /// each ring.
  ///
  /// On 2 H200, 1 GiB to one peer takes 2952 us in one launch and 3012 us in four. On 4 H200, an
  /// all-to-all of 1 GiB took 2451 us in one launch and 2311 us in two; there the peers had mapped
  /// memory in small pages (docs/validation/performance_h200x2.md).
  static constexpr Index max_bytes(const PeerView& peers, int max_rings) {
    if (Rings::slot_bytes(peers, max_rings) < 1) return 0;
    const Index each =
        peers.ranks > 2 ? (Index{512} << 20) / peers.ranks / 128 * 128 : Index{1} << 30;
    const Index by_ring = Index{max_rings} << 22;
    return by_ring > each ? by_ring : each;
  }
  /// Returns true if peers cannot map the memory of some message that they send.
  static bool receives_slots(const Work& work) {
    for (int p = 0; p < work.peers.ranks; ++p) {
      if (p != work.peers.rank && work.in[p].bytes > 0 && work.where[p] == 0) return true;
    }
    return false;
  }
  /// Returns true if the copy engine can send the messages of a launch, and they are long.
  static bool suits_engine(const Work& work) {
    Word bits = 0;
    Index most = 0;
    for (int i = 0; i < work.to.count; ++i) {
      const Message& out = work.out[work.to.rank[i]];
      bits |= reinterpret_cast<cuda::std::uintptr_t>(out.data) | Word(out.bytes);
      most = most < out.bytes ? out.bytes : most;
    }
    return bits % sizeof(Packet) == 0 && most >= work.to.rings * worth_bulk_copy;
  }
  /// Completes the arguments, before a launch.
  static void assign(Work& work) {
    work.slot_bytes = Rings::slot_bytes(work.peers, work.rings.many);
    work.own_step = receives_slots(work) ? work.slot_bytes : Rings::whole;
    take_own(work);
    for (int i = 0; i < work.to.count; ++i) {
      take(work.to, work.out[work.to.rank[i]].bytes, work.rings);
    }
    for (int i = 0; i < work.from.count; ++i) {
      take(work.from, work.in[work.from.rank[i]].bytes, work.rings);
    }
  }

 private:
  using Partners = typename Work::Partners;

  static void take(Partners& partners, Index bytes, const RingLimit& limit) {
    const int rings = Rings::used(bytes, limit);
    partners.rings = partners.rings < rings ? rings : partners.rings;
  }
  /// Takes this rank, which comes first, from the ranks to send to.
  static void take_own(Work& work) {
    auto& to = work.to;
    work.own_rings = 0;
    if (to.count == 0 || to.rank[0] != work.peers.rank) return;
    const Message &from = work.out[work.peers.rank], &own = work.in[work.peers.rank];
    if (own.data != from.data && own.bytes == from.bytes) {
      work.own_rings = Rings::used(own.bytes, work.rings);
    }
    --to.count;
    for (int i = 0; i < to.count; ++i) to.rank[i] = to.rank[i + 1];
  }
};

}  // namespace ccl::detail

CCL_ANY_SPACE_END
