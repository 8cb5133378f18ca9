// Proves Tree at compile time for 2 to 9 ranks, and for more at run time: it is complete, counts
// nothing twice and cannot deadlock.
#include <ccl/algo/tree.hpp>

#include "support/catch.hpp"
#include "support/symbolic.hpp"

using namespace ccl;
using namespace ccl::test;

constexpr auto all_play = [](int ranks) {
  return plays<AllReduce, Tree>(ranks, 8, 0, 0) && plays<AllReduce, Tree>(ranks, 8, 0, 1) &&
         plays<Broadcast, Tree>(ranks, 1, ranks - 1) && plays<Reduce, Tree>(ranks, 1, ranks / 2);
};
static_assert(proved<all_play>);

TEST_CASE("tree: plays to the end for 2 to 17 ranks") {
  CHECK(fails_for(all_play) == 0);
}

TEST_CASE("tree: plays to the end over wires of any length, its edges inside hosts or between") {
  for (const int ranks : {2, 3, 5, 8, 13, 16, 24, 31}) {
    for (const int slots : {1, 2, 3, 4, 8}) {
      for (const int of_host : {1, 2, 4, 1000}) {
        INFO(ranks << " ranks, " << of_host << " on a host, wires of " << slots);
        CHECK(plays<AllReduce, Tree>(ranks, slots, 0, 0, of_host));
        CHECK(plays<AllReduce, Tree>(ranks, slots, 0, 1, of_host));
      }
    }
  }
}

TEST_CASE("tree: a rank is further ahead than its parent by what their edge is to hide") {
  struct Wires {
    int window() const { return 8; }
  };
  for (int ranks = 2; ranks <= 40; ++ranks) {
    for (const int which : {0, 1}) {
      for (int r = 0; r < ranks; ++r) {
        const TreePosition position = tree_over_hosts(r, ranks, 0, which, 4);
        if (position.is_root()) {
          CHECK(position.near + position.far == 0);
          continue;
        }
        const TreePosition up = tree_over_hosts(position.up, ranks, 0, which, 4);
        const int more = Tree::lead(position, Wires{}) - Tree::lead(up, Wires{});
        CHECK(more == (r / 4 == position.up / 4 ? Tree::near_lead : 8));
        const TreePosition flat = double_binary_tree(r, ranks, 0, which);
        CHECK(flat.near == position.near + position.far);
        CHECK(flat.far == 0);
      }
    }
  }
}

TEST_CASE("every rank but the roots is a leaf of at least one of the two trees") {
  for (int ranks = 2; ranks <= 17; ++ranks) {
    for (int r = 0; r < ranks; ++r) {
      const auto a = double_binary_tree(r, ranks, 0, 0), b = double_binary_tree(r, ranks, 0, 1);
      INFO("rank " << r << " of " << ranks);
      CHECK((a.is_leaf() || b.is_leaf() || a.is_root() || b.is_root()));
    }
  }
}
