#pragma once

#include <ccl/algo/one_tree.hpp>
#include <ccl/proto/wire_prims.hpp>

namespace ccl {

/// One binary tree that takes the ranks in their order: a node's rank, then those below its first
/// child, then those below its second. Since a node adds its own value first, the result is
/// 0, 1, 2, ... in that order, whatever the brackets: for functors that are associative and not
/// commutative. It heeds no topology: hosts whose ranks follow each other are crossed least often.
struct OrderedTree : OneTree {
  static constexpr const char* name = "OrderedTree";
  static constexpr bool reorders = false;
  template <class Op>
  static constexpr SumOrder order = SumOrder::ordered_tree;

  /// `near` counts all edges to the root, which is rank 0.
  CCL_HD static constexpr TreeSeat seat(int rank, int ranks) {
    TreeSeat at;
    int first = 0, count = ranks;  // the ranks below a node, itself included
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

  template <class Seats>
  static constexpr void peers(Seats& seats) {
    Placed<Seats> placed{seats};
    OneTree::peers(placed);
  }
  template <class Context>
  CCL_HD static constexpr void run(AllReduce, Context& context) {
    Placed<Context> placed{context};
    OneTree::run(AllReduce{}, placed);
  }

 private:
  /// What an algorithm is given, but for its place in the tree.
  template <class Given>
  struct Placed {
    Given& given;
    CCL_HD constexpr TreeSeat tree() const { return seat(given.rank(), given.ranks()); }
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
