#pragma once

#include <ccl/algo/cost.hpp>
#include <ccl/types/macros.hpp>
#include <ccl/types/operations.hpp>
#include <ccl/types/word.hpp>

CCL_ANY_SPACE_BEGIN

namespace ccl {

/// Each rank communicates only with its two neighbors.
/// - AllReduce: 2(R - 1) hops; 2(R - 1)/R of the message leaves each rank.
/// - AllGather, ReduceScatter: R - 1 hops; (R - 1)/R of the message leaves each rank.
/// - Broadcast, Reduce: a chain.
/// A share is reduced once around the ring and ends at its own rank, so each share has another
/// order.
struct Ring {
  using Validated = Ring;  // tests validate the algorithm: compositions need no dry run
  static constexpr const char* name = "Ring";
  static constexpr bool reorders = true;
  static constexpr bool root_moves_wires = false;
  /// Returns the maximum number of wires into one rank. The memory plan assumes it.
  static constexpr int max_wires(int) { return 1; }
  static constexpr int wires = 2;  ///< wires of a rank that one channel uses at once
  /// True: peers may write parts to their places as soon as a call has begun. What a rank reads
  /// there goes around the ring before the part that replaces it arrives.
  static constexpr bool lands_ahead = true;
  template <class Op>
  static constexpr bool supports =
      is_one_of<Op, AllReduce, AllGather, ReduceScatter, Broadcast, Reduce>;
  template <class Op>
  static constexpr CostTerms cost_terms(int ranks) {
    const double others = ranks - 1;
    // On 2 H200 and 32 blocks, 8, 32 and 128 MiB take 27.9, 99.5 and 376 us: 5 % less than at the
    // rate of few blocks, to which all-reduces are fitted.
    if constexpr (is_one_of<Op, Broadcast, Reduce>) return {others, 1, ranks == 2 ? 0.95 : 0};
    // On 2 H200 and 32 blocks, ReduceScatter of 64 and 256 MiB takes 131 and 446 us, AllReduce of
    // 16 to 256 MiB 60.9, 213 and 777. More ranks were not measured so.
    if constexpr (is_one_of<Op, ReduceScatter>) {
      if (ranks == 2) return {others, others / ranks, 1.15 * others / ranks};
    }
    if constexpr (is_one_of<Op, AllReduce>) {
      if (ranks == 2) return {2 * others, 2 * others / ranks, 0, 6};
    }
    return is_one_of<Op, AllReduce> ? CostTerms{2 * others, 2 * others / ranks}
                                    : CostTerms{others, others / ranks};
  }
  /// Returns the inter-node fraction of the hops: the ranks of a host are adjacent in the ring.
  static constexpr double inter_node_fraction(int ranks, int hosts) {
    return double(hosts) / ranks;
  }
  template <class Op>
  static constexpr SumOrder order = is_one_of<Op, AllReduce> ? SumOrder::varies : SumOrder::ring;

  template <class Positions>
  static constexpr void peers(Positions& positions) {
    const auto at = positions.ring();
    positions.from(at.prev());
    positions.to(at.next());
  }

  template <class Context>
  CCL_HD static constexpr void run(AllReduce, Context& context) {
    const auto at = context.ring();
    auto chunks = context.chunks(at.ranks);
    auto prims = context.template prims<1, 1>({at.prev()}, {at.next()});
    prims.lend();
    while (chunks.next()) {
      prims.send(chunks.share(at.behind(1)));
      CCL_ROLL for (int j = 2; j < at.ranks; ++j)
          prims.recv_reduce_send(chunks.share(at.behind(j)));
      prims.recv_reduce_copy_send(chunks.share(at.rank()));
      CCL_ROLL for (int j = 1; j < at.ranks - 1; ++j)
          prims.recv_copy_send(chunks.share(at.behind(j)));
      prims.recv(chunks.share(at.ahead(1)));
    }
  }

  template <class Context>
  CCL_HD static constexpr void run(AllGather, Context& context) {
    const auto at = context.ring();
    auto chunks = context.chunks(at.ranks);
    auto prims = context.template prims<1, 1>({at.prev()}, {at.next()});
    prims.lend();
    while (chunks.next()) {
      prims.copy_send(chunks.share(at.rank()));
      CCL_ROLL for (int j = 1; j < at.ranks - 1; ++j)
          prims.recv_copy_send(chunks.share(at.behind(j)));
      prims.recv(chunks.share(at.ahead(1)));
    }
  }

  template <class Context>
  CCL_HD static constexpr void run(ReduceScatter, Context& context) {
    const auto at = context.ring();
    auto chunks = context.chunks(at.ranks);
    auto prims = context.template prims<1, 1>({at.prev()}, {at.next()});
    prims.lend();
    while (chunks.next()) {
      prims.send(chunks.share(at.behind(1)));
      CCL_ROLL for (int j = 2; j < at.ranks; ++j)
          prims.recv_reduce_send(chunks.share(at.behind(j)));
      prims.recv_reduce_copy(chunks.share(at.rank()));
    }
  }

  template <class Context>
  CCL_HD static constexpr void run(Broadcast, Context& context) {
    const auto at = context.ring();
    auto chunks = context.chunks(1);
    const int hops = at.distance_from(context.root());
    auto prims = context.template prims<1, 1>({at.prev()}, {at.next()});
    prims.lend();
    if (hops == 0) prims.only_sends();
    while (chunks.next()) {
      if (hops == 0) {
        prims.copy_send(chunks.all());
      } else if (hops < at.ranks - 1) {
        prims.recv_copy_send(chunks.all());
      } else {
        prims.recv(chunks.all());
      }
    }
  }

  template <class Context>
  CCL_HD static constexpr void run(Reduce, Context& context) {
    const auto at = context.ring();
    auto chunks = context.chunks(1);
    const int hops = at.distance_from(context.root());
    auto prims = context.template prims<1, 1>({at.prev()}, {at.next()});
    prims.lend();
    while (chunks.next()) {
      if (hops == 0) {
        prims.recv_reduce_copy(chunks.all());
      } else if (hops == 1) {
        prims.only_sends();
        prims.send(chunks.all());
      } else {
        prims.recv_reduce_send(chunks.all());
      }
    }
  }
};

}  // namespace ccl

CCL_ANY_SPACE_END
