#pragma once

#include <ccl/detail/lanes/peer_view.hpp>
#include <ccl/detail/numeric/reduction.hpp>
#include <ccl/element/switch_op.hpp>
#include <ccl/proto/lane_group.hpp>
#include <ccl/types/macros.hpp>

CCL_ANY_SPACE_BEGIN

namespace ccl::detail {

/// Memory of all ranks, reached at once. Places count from the begin of the scratch, or of a
/// window.
/// - `load_reduced<F, T>(packet)`: the reduction of the packet of every rank. Bulk.
/// - `store(packet, value)`: stores to every rank. Bulk; the copies land at different times.
/// - `store_relaxed(word, value)`: stores a word to every rank, without an order.
/// - `store_release(word, value)`: stores a word to every rank. Who acquires a copy sees all that
///   this lane, and lanes that it has joined, wrote before.
/// - `fence()`: orders accesses of this lane to its own copy and to all copies. Before
///   `store_release`, and after its word was acquired.
template <class M>
concept MulticastMemory = requires(const M memory, Index at, Packet packet, Word word) {
  { memory.template load_reduced<Sum, float>(at) } -> cuda::std::same_as<Packet>;
  memory.store(at, packet);
  memory.store_relaxed(at, word);
  memory.store_release(at, word);
  M::fence();
};

/// Multicast by plain loads from each rank and stores to each. It needs no switch: CPU lanes prove
/// algorithms with it. `Most`: maximum number of ranks.
template <class Memory, int Most = max_view_ranks>
class UnicastMulticast {
 public:
  CCL_HD UnicastMulticast(Word, const PeerView& peers) : peers_{peers} {}

  /// Reduces in rank order, in the accumulate type, and rounds once.
  template <class F, class T>
  CCL_HD Packet load_reduced(Index packet) const {
    static_assert(SwitchOp<F, T>::possible);
    using Functor = typename SwitchOp<F, T>::Functor;
    using Cells = CellReducer<Reduction<Functor, T>, 2>;
    auto sum = Cells::from_received({Functor{}, peers_.ranks}, load(0, packet));
    CCL_ROLL for (int r = 1; r < peers_.ranks; ++r) sum.add_received(load(r, packet));
    const Fragment<2> result = sum.result();
    return {result.word[0], result.word[1]};
  }
  CCL_HD void store(Index packet, Packet value) const {
    // Ranks begin at different peers, so that no peer receives all stores at once.
    CCL_ROLL for (int k = 0; k < peers_.ranks; ++k) {
      Memory::store_bulk(scratch_after(k) + packet, value);
    }
  }
  CCL_HD void store_relaxed(Index word, Word value) const {
    CCL_ROLL for (int k = 0; k < peers_.ranks; ++k)
        Memory::store_relaxed(word_after(k, word), value);
  }
  CCL_HD void store_release(Index word, Word value) const {
    CCL_ROLL for (int k = 0; k < peers_.ranks; ++k)
        Memory::store_release(word_after(k, word), value);
  }
  CCL_HD static void fence() {}  // each place has one address

 private:
  CCL_HD Packet* scratch_after(int k) const {
    const int r = peers_.rank + k;
    return peers_.template scratch_of<Most>(r < peers_.ranks ? r : r - peers_.ranks);
  }
  CCL_HD Word* word_after(int k, Index word) const {
    return reinterpret_cast<Word*>(scratch_after(k)) + word;
  }
  CCL_HD Fragment<2> load(int rank, Index packet) const {
    const Packet p = Memory::load_bulk(peers_.template scratch_of<Most>(rank) + packet);
    return {{p.word[0], p.word[1]}};
  }

  const PeerView& peers_;
};
static_assert(MulticastMemory<UnicastMulticast<AnyMemory>>);

}  // namespace ccl::detail

CCL_ANY_SPACE_END
