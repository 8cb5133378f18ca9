#pragma once

#include <ccl/algo/one_tree.hpp>
#include <ccl/algo/peers.hpp>
#include <ccl/types/macros.hpp>

CCL_ANY_SPACE_BEGIN

namespace ccl {

/// Binary tree in rank order, for functors that are associative and not commutative. The order is a
/// node's rank, then the ranks below its first child, then those below its second. A node adds its
/// own value first, so the result is 0, 1, 2, ... in that order, with any brackets.
///
/// It ignores the topology: the fewest host crossings need consecutive ranks on each host. The
/// tree's root is rank 0, which comes first; a Reduce to another rank takes one hop more.
struct OrderedTree : OneTree {
  using Validated = OrderedTree;  // tests validate the algorithm: compositions need no dry run
  static constexpr const char* name = "OrderedTree";
  static constexpr bool reorders = false;
  template <class Op>
  static constexpr bool supports = is_one_of<Op, AllReduce, Reduce>;
  template <class Op>
  static constexpr CostTerms cost_terms(int ranks) {
    if constexpr (is_one_of<Op, AllReduce>) return OneTree::cost_terms<Op>(ranks);
    // The root of the operation has two children and receives the result too.
    return {Tree::cost_terms<Op>(ranks).hops + 1, ranks > 2 ? 3.0 : 1.0};
  }
  template <class Op>
  static constexpr SumOrder order = SumOrder::ordered_tree;

  /// Returns the position of `rank`. `near` counts all edges to the root, which is rank 0.
  CCL_HD static constexpr TreePosition position(int rank, int ranks) {
    TreePosition at;
    int first = 0, count = ranks;  // the ranks of a subtree, its root included
    for (;;) {
      const int below = count - 1, left = (below + 1) / 2;
      if (rank == first) {
        if (below > 0) at.down[0] = first + 1;
        if (below > left) at.down[1] = first + 1 + left;
        return at;
      }
      at.up = first;
      ++at.near;
      const bool in_left = rank <= first + left;
      first += in_left ? 1 : 1 + left;
      count = in_left ? left : below - left;
    }
  }

  template <class Positions>
  static constexpr void peers(Positions& positions) {
    Placed<Positions> placed{positions};
    OneTree::peers(placed);
    if (positions.root() <= 0) return;
    if (positions.rank() == 0) positions.to(positions.root());
    if (positions.rank() == positions.root()) positions.from(0);
  }
  template <class Context>
  CCL_HD static constexpr void run(AllReduce, Context& context) {
    Placed<Context> placed{context};
    OneTree::run(AllReduce{}, placed);
  }

  template <class Context>
  CCL_HD static constexpr void run(Reduce, Context& context) {
    const int root = context.root();
    Placed<Context> placed{context};
    const TreePosition at = placed.tree();
    if (root == 0 || (context.rank() != root && !at.is_root())) {
      OneTree::run(Reduce{}, placed);
      return;
    }
    auto ahead = context.chunks(1);
    if (at.is_root()) {
      auto turn = context.template prims<3, 1>({at.down[0], at.down[1], at.down[2]}, {root});
      while (ahead.next()) turn.recv_reduce_finish_send(ahead.all());
      return;
    }
    auto up = context.template prims<3, 1>({at.down[0], at.down[1], at.down[2]}, {at.up});
    auto whole = context.template prims<1, 1>({0}, {-1});
    auto behind = ahead;
    // At most the chunks that the wires to rank 0 and back hold; more would wait for itself.
    const int most = (at.near + 1) * context.window();
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
      whole.recv(behind.all());
      --under_way;
    }
  }

 private:
  /// Context of an algorithm with another position in the tree.
  template <class Given>
  struct Placed {
    Given& given;
    CCL_HD constexpr TreePosition tree() const { return position(given.rank(), given.ranks()); }
    constexpr void from(int peer) { given.from(peer); }
    constexpr void to(int peer) { given.to(peer); }
    CCL_HD constexpr auto chunks(int shares) const { return given.chunks(shares); }
    CCL_HD constexpr int window() const { return given.window(); }
    template <int In, int Out>
    CCL_HD constexpr auto prims(const Peers<In>& ins, const Peers<Out>& outs) const {
      return given.template prims<In, Out>(ins, outs);
    }
  };
};

}  // namespace ccl

CCL_ANY_SPACE_END
