#pragma once

#include <ccl/types/operations.hpp>
#include <ccl/algo/cost.hpp>
#include <ccl/element/reduce_op.hpp>
#include <ccl/types/word.hpp>

namespace ccl {

/// Recursive doubling: each rank exchanges all it has with the rank whose place in the ring differs
/// in one bit, bit by bit, neighbours first. log2(R) hops of the whole message, so it is for small
/// ones; ranks beyond the largest power of two hand their data to a partner first and get the
/// result last. Two ranks add the same two values in either order: the same bits everywhere if the
/// functor gives them for (a, b) and (b, a) (of Min and Max, all but the sign of a zero).
///
/// AllGather goes from the farthest bit to the nearest: the shares that are many stay on a host.
struct Doubling {
  using Validated = Doubling;  // tests prove it: compositions need no dry run
  static constexpr const char* name = "Doubling";
  static constexpr bool reorders = true;
  static constexpr bool root_moves_wires = false;
  /// Into one rank, at most: what the memory plan reckons with.
  static constexpr int max_wires(int ranks) { return ranks - 1; }
  static constexpr int wires = 2;  // that one channel of a rank works on at once
  template <class Op>
  static constexpr bool supports = is_one_of<Op, AllReduce, AllGather>;
  template <class Op>
  static constexpr CostTerms cost_terms(int ranks) {
    double rounds = 0;
    for (int paired = power_of_two(ranks); paired > 1; paired /= 2) ++rounds;
    const double more = power_of_two(ranks) == ranks ? 0 : 2;
    if constexpr (is_one_of<Op, AllGather>) {
      return {rounds + more, (1.05 + more / 2) * (ranks - 1.0) / ranks};
    }
    return {rounds + more, 1.6 * (rounds + more / 2)};  // each rank also adds up all of it
  }
  /// The near hops stay on a host. Those of AllReduce carry the whole message, which all ranks of a
  /// host then have on their hands at once: measured, a tree is faster than that would make it.
  template <class Op>
  static constexpr double inter_node_fraction(int ranks, int hosts) {
    const double far = detail::doublings(hosts), all = detail::doublings(ranks);
    return is_one_of<Op, AllGather> && far < all ? far / all : 1;
  }
  /// A host's shares leave it once.
  template <class Op>
  static constexpr double inter_node_volume(int ranks, int hosts) {
    const double all = cost_terms<Op>(ranks).volume;
    if (is_one_of<Op, AllReduce> || power_of_two(ranks) != ranks) return all;
    return 1.05 * (hosts - 1) / hosts;
  }
  template <class Op>
  static constexpr SumOrder order = SumOrder::halves;
  /// Partial results become a rank's own data, so there is no place for a prologue or an epilogue.
  template <class F>
  static constexpr bool supports_reduction = !is_one_of<F, Avg, PreMulSum>;

  template <class Positions>
  static constexpr void peers(Positions& positions) {
    const auto at = positions.ring();
    const int place = at.place, paired = power_of_two(at.ranks);
    const auto both = [&](int other) {
      positions.from(at.rank_at(other));
      positions.to(at.rank_at(other));
    };
    if (place >= paired) return both(place - paired);
    if (place + paired < at.ranks) both(place + paired);
    for (int bit = 1; bit < paired; bit <<= 1) both(place ^ bit);
  }

  template <class Context>
  CCL_HD static constexpr void run(AllReduce, Context& context) {
    const auto at = context.ring();
    const int place = at.place, paired = power_of_two(at.ranks);
    const int partner = place + paired < at.ranks ? at.rank_at(place + paired) : -1;
    for (auto chunks = context.chunks(1); chunks.next();) {
      const auto all = chunks.all();
      if (place >= paired) {
        const int inner = at.rank_at(place - paired);
        auto outer = context.template prims<1, 1>({inner}, {inner});
        outer.send(all);
        outer.recv(all);
        continue;
      }
      if (partner >= 0) {
        auto first = context.template prims<1, 1>({partner}, {at.rank_at(place ^ 1)});
        first.recv_reduce_copy_send(all);
      } else {
        const int neighbour = at.rank_at(place ^ 1);
        auto first = context.template prims<1, 1>({neighbour}, {neighbour});
        first.send(all);
      }
      for (int bit = 1; bit < paired; bit <<= 1) {
        const int other = at.rank_at(place ^ bit);
        const int next = bit << 1 < paired ? at.rank_at(place ^ bit << 1) : partner;
        auto step = context.template prims<1, 1>({other}, {next >= 0 ? next : other});
        if (bit > 1 || partner >= 0) step.own_is_output();
        if (next >= 0) {
          step.recv_reduce_copy_send(all);
        } else {
          step.recv_reduce_copy(all);
        }
      }
    }
  }

  template <class Context>
  CCL_HD static constexpr void run(AllGather, Context& context) {
    const auto at = context.ring();
    const int place = at.place, paired = power_of_two(at.ranks), most = paired / 2;
    for (auto chunks = context.chunks(at.ranks); chunks.next();) {
      const auto mine = chunks.share(at.rank());
      if (place >= paired) {
        const int inner = at.rank_at(place - paired);
        auto outer = context.template prims<1, 1>({inner}, {inner});
        outer.copy_send(mine);
        for (int n = 0; n < 2 * paired; ++n) {
          const int of = held(place - paired, n, 1, paired);
          if (of < at.ranks && of != place) outer.recv(chunks.share(at.rank_at(of)));
        }
        continue;
      }
      const int partner = place + paired < at.ranks ? at.rank_at(place + paired) : -1;
      if (partner >= 0) {
        auto first = context.template prims<1, 1>({partner}, {partner});
        first.recv(chunks.share(partner));
      }
      // Both send before they receive: no more at once than a wire holds.
      const int window = context.window(mine.count);
      for (int bit = most; bit > 0; bit >>= 1) {
        const int other = at.rank_at(place ^ bit), shares = paired / bit;
        auto prims = context.template prims<1, 1>({other}, {other});
        prims.lend();
        if (bit < most) prims.own_is_output();
        for (int first = 0; first < shares; first += window) {
          const int end = first + window < shares ? first + window : shares;
          for (int n = first; n < end; ++n) {
            const int of = held(place, n, 2 * bit, paired);
            if (of >= at.ranks) continue;
            const auto share = chunks.share(at.rank_at(of));
            if (bit == most && n == 0) {
              prims.copy_send(share);
              prims.own_is_output();
            } else {
              prims.send({share.out, share.out, share.count});
            }
          }
          for (int n = first; n < end; ++n) {
            const int of = held(place ^ bit, n, 2 * bit, paired);
            if (of < at.ranks) prims.recv(chunks.share(at.rank_at(of)));
          }
        }
      }
      if (partner < 0) continue;
      auto last = context.template prims<1, 1>({partner}, {partner});
      last.lend();
      last.own_is_output();
      for (int n = 0; n < 2 * paired; ++n) {
        const int of = held(place, n, 1, paired);
        if (of >= at.ranks || of == place + paired) continue;
        const auto share = chunks.share(at.rank_at(of));
        last.send({share.out, share.out, share.count});
      }
    }
  }

 private:
  /// The n-th of the places whose shares a place has when it has met those that differ in bits from
  /// `bit` on; each with that of the place's partner, if there is one.
  CCL_HD static constexpr int held(int place, int n, int bit, int paired) {
    return (place ^ n / 2 * bit) + n % 2 * paired;
  }
  CCL_HD static constexpr int power_of_two(int ranks) {
    int paired = 1;
    while (paired * 2 <= ranks) paired *= 2;
    return paired;
  }
};

}  // namespace ccl
