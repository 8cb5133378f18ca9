#pragma once

#include <ccl/types/operations.hpp>
#include <ccl/algo/cost.hpp>
#include <ccl/types/word.hpp>

namespace ccl {

/// Each rank talks to its two neighbours only. AllReduce: 2(R - 1) hops, 2(R - 1)/R of the message
/// leaves each rank; AllGather and ReduceScatter half of that; Broadcast and Reduce are chains.
/// A share is reduced once around the ring, ending at its own rank: each share in another order.
struct Ring {
  using Validated = Ring;  // tests prove it: compositions need no dry run
  static constexpr const char* name = "Ring";
  static constexpr bool reorders = true;
  static constexpr bool root_moves_wires = false;
  /// Into one rank, at most: what the memory plan reckons with.
  static constexpr int max_wires(int) { return 1; }
  static constexpr int wires = 2;  // that one channel of a rank works on at once
  template <class Op>
  static constexpr bool supports =
      is_one_of<Op, AllReduce, AllGather, ReduceScatter, Broadcast, Reduce>;
  template <class Op>
  static constexpr CostTerms cost_terms(int ranks) {
    const double others = ranks - 1;
    if constexpr (is_one_of<Op, Broadcast, Reduce>) return {others, 1};
    return is_one_of<Op, AllReduce> ? CostTerms{2 * others, 2 * others / ranks}
                                         : CostTerms{others, others / ranks};
  }
  /// A host's ranks stand together.
  static constexpr double inter_node_fraction(int ranks, int hosts) { return double(hosts) / ranks; }
  template <class Op>
  static constexpr SumOrder order =
      is_one_of<Op, AllReduce> ? SumOrder::varies : SumOrder::ring;

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
      for (int j = 2; j < at.ranks; ++j) prims.recv_reduce_send(chunks.share(at.behind(j)));
      prims.recv_reduce_copy_send(chunks.share(at.rank()));
      for (int j = 1; j < at.ranks - 1; ++j) prims.recv_copy_send(chunks.share(at.behind(j)));
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
      for (int j = 1; j < at.ranks - 1; ++j) prims.recv_copy_send(chunks.share(at.behind(j)));
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
      for (int j = 2; j < at.ranks; ++j) prims.recv_reduce_send(chunks.share(at.behind(j)));
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
        prims.send(chunks.all());
      } else {
        prims.recv_reduce_send(chunks.all());
      }
    }
  }
};

}  // namespace ccl
