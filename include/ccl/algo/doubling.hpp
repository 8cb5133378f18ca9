#pragma once

#include <ccl/algo/cost.hpp>
#include <ccl/element/reduce_op.hpp>
#include <ccl/types/macros.hpp>
#include <ccl/types/operations.hpp>
#include <ccl/types/word.hpp>

CCL_ANY_SPACE_BEGIN

namespace ccl {

/// Recursive doubling: each rank exchanges all its data with the rank whose place in the ring
/// differs in one bit, bit by bit, neighbors first. It takes log2(R) hops of the whole message, so
/// it suits small messages. Ranks beyond the largest power of two send their data to a partner
/// first and receive the result last.
///
/// Two ranks add the same two values in either order. All ranks get the same bits if the functor
/// gives the same bits for (a, b) and (b, a); Min and Max do, except for the sign of a zero.
/// AllGather goes from the farthest bit to the nearest, so most shares stay on a host.
struct Doubling {
  using Validated = Doubling;  // tests validate the algorithm: compositions need no dry run
  static constexpr const char* name = "Doubling";
  static constexpr bool reorders = true;
  static constexpr bool root_moves_wires = false;
  /// Returns the maximum number of wires into one rank. The memory plan assumes it.
  static constexpr int max_wires(int ranks) { return ranks - 1; }
  static constexpr int wires = 2;  ///< wires of a rank that one channel uses at once
  /// True: peers may write parts to their places as soon as a call has begun. A share arrives once,
  /// and the result of an all-reduce after the partner has this rank's data.
  static constexpr bool lands_ahead = true;
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
    return {rounds + more, 1.6 * (rounds + more / 2)};  // each rank also adds up the whole message
  }
  /// Returns the inter-node fraction of the hops; the near hops stay on a host. AllReduce keeps the
  /// default: its hops carry the whole message for all ranks of a host at once.
  template <class Op>
  static constexpr double inter_node_fraction(int ranks, int hosts) {
    const double far = detail::doublings(hosts), all = detail::doublings(ranks);
    return is_one_of<Op, AllGather> && far < all ? far / all : 1;
  }
  /// Returns the inter-node volume: a host's shares leave it once.
  template <class Op>
  static constexpr double inter_node_volume(int ranks, int hosts) {
    const double all = cost_terms<Op>(ranks).volume;
    if (is_one_of<Op, AllReduce> || power_of_two(ranks) != ranks) return all;
    return 1.05 * (hosts - 1) / hosts;
  }
  template <class Op>
  static constexpr SumOrder order = SumOrder::halves;
  /// True if `F` needs no prologue or epilogue, because partial results become a rank's own data.
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
        const int neighbor = at.rank_at(place ^ 1);
        auto first = context.template prims<1, 1>({neighbor}, {neighbor});
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
        outer.lend();
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
      // Both ranks send before they receive, so they send at most the shares that a wire holds.
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
  /// Returns the n-th of the places whose shares `place` holds after its exchanges for all bits
  /// from `bit` on. Each place is followed by its partner, if there is one.
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

CCL_ANY_SPACE_END
