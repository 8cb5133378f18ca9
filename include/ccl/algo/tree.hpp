#pragma once

#include <ccl/algo/cost.hpp>
#include <ccl/types/macros.hpp>
#include <ccl/types/operations.hpp>
#include <ccl/types/position.hpp>

CCL_ANY_SPACE_BEGIN

namespace ccl {

/// Data flows up a tree, reduced at each node, and down again: 2 log2(R) hops. Channels alternate
/// between the two trees of a double binary tree, so every rank is an inner node of one of them. A
/// node adds its own data first, then its children's in order, so all ranks get the same bits.
///
/// Both directions run at once: a rank sends chunk k + lead up before it receives chunk k from
/// above.
struct Tree {
  using Validated = Tree;  // tests validate the algorithm: compositions need no dry run
  static constexpr const char* name = "Tree";
  static constexpr bool reorders = true;
  static constexpr bool root_moves_wires = true;
  /// Returns the maximum number of wires into one rank. The memory plan assumes it.
  static constexpr int max_wires(int) { return 2 * TreePosition::arity; }
  static constexpr int wires =
      2 * (TreePosition::arity + 1);  // wires of a rank that one channel uses at once
  /// True: peers may write parts to their places as soon as a call has begun. A result comes down
  /// after the rank's own data has gone up.
  static constexpr bool lands_ahead = true;
  template <class Op>
  static constexpr bool supports = is_one_of<Op, AllReduce, Broadcast, Reduce>;
  static constexpr bool one_tree = false;  ///< true: all channels of an all-reduce share one tree
  template <class Op>
  static constexpr CostTerms cost_terms(int ranks) {
    double levels = 0;
    for (int below = 1; below < ranks; below *= 2) ++levels;
    if constexpr (!is_one_of<Op, AllReduce>) return {levels, ranks > 2 ? 2.0 : 1.0};
    return {2 * levels, ranks > 2 ? 2.3 : 1.2};  // measured with two trees
  }
  /// Returns the inter-node fraction of the hops: inside a host first, then between hosts.
  static constexpr double inter_node_fraction(int ranks, int hosts) {
    return double(detail::doublings(hosts)) / detail::doublings(ranks);
  }
  template <class Op>
  static constexpr SumOrder order = is_one_of<Op, AllReduce> ? SumOrder::varies : SumOrder::tree;
  /// Returns the chunks that a rank sends up before it receives the first from above. The lead
  /// grows with the distance from the root: the chunks beyond the parent's lead are in flight on
  /// the edge to it. They hide that edge's latency.
  ///
  /// With an equal lead everywhere, no rank could send a chunk down before the next had come up
  /// from the leaves. Over a network the lead is a whole wire of chunks for each edge. Twice that
  /// is the maximum that completes, because one wire up and one down are then full.
  template <class Context>
  CCL_HD static constexpr int lead(const TreePosition& at, const Context& context) {
    return near_lead * at.near + (at.far > 0 ? at.far * context.window() : 0);
  }
  static constexpr int near_lead = 2;  ///< chunks for each edge inside a machine

  template <class Positions>
  static constexpr void peers(Positions& positions) {
    const auto at = positions.tree();
    if (at.up >= 0) {
      positions.from(at.up);
      positions.to(at.up);
    }
    for (const int d : at.down) {
      if (d < 0) continue;
      positions.from(d);
      positions.to(d);
    }
  }

  template <class Context>
  CCL_HD static constexpr void run(AllReduce, Context& context) {
    const auto at = context.tree();
    auto ahead = context.chunks(1);
    if (at.is_root()) {
      // The turning point is one step, so the sum stays in registers.
      auto turn = context.template prims<3, 3>({at.down[0], at.down[1], at.down[2]},
                                               {at.down[0], at.down[1], at.down[2]});
      turn.lend();
      while (ahead.next()) turn.recv_reduce_copy_send(ahead.all());
      return;
    }
    auto up = context.template prims<3, 1>({at.down[0], at.down[1], at.down[2]}, {at.up});
    auto down = context.template prims<1, 3>({at.up}, {at.down[0], at.down[1], at.down[2]});
    up.lend();
    down.lend();
    auto behind = ahead;
    const int most = lead(at, context);
    for (int under_way = 0;;) {
      if (under_way < most && ahead.next()) {
        if (at.is_leaf()) {
          up.send(ahead.all());
        } else {
          up.recv_reduce_send(ahead.all());
        }
        ++under_way;
        continue;
      }
      if (!behind.next()) break;
      if (at.is_leaf()) {
        down.recv(behind.all());
      } else {
        down.recv_copy_send(behind.all());
      }
      --under_way;
    }
  }

  template <class Context>
  CCL_HD static constexpr void run(Broadcast, Context& context) {
    const auto at = context.tree();
    auto chunks = context.chunks(1);
    auto prims = context.template prims<1, 3>({at.up}, {at.down[0], at.down[1], at.down[2]});
    prims.lend();
    if (at.is_root()) prims.only_sends();
    while (chunks.next()) {
      if (at.is_root()) {
        prims.copy_send(chunks.all());
      } else if (at.is_leaf()) {
        prims.recv(chunks.all());
      } else {
        prims.recv_copy_send(chunks.all());
      }
    }
  }

  template <class Context>
  CCL_HD static constexpr void run(Reduce, Context& context) {
    const auto at = context.tree();
    auto chunks = context.chunks(1);
    auto prims = context.template prims<3, 1>({at.down[0], at.down[1], at.down[2]}, {at.up});
    prims.lend();
    if (at.is_leaf()) prims.only_sends();
    while (chunks.next()) {
      if (at.is_root()) {
        prims.recv_reduce_copy(chunks.all());
      } else if (at.is_leaf()) {
        prims.send(chunks.all());
      } else {
        prims.recv_reduce_send(chunks.all());
      }
    }
  }
};

}  // namespace ccl

CCL_ANY_SPACE_END
