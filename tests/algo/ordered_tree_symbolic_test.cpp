// Proves OrderedTree at compile time for 2 to 9 ranks, and for more at run time: it is complete,
// counts nothing twice and cannot deadlock. Every root is tested at run time.
#include <ccl/algo/ordered_tree.hpp>

#include "support/catch.hpp"
#include "support/symbolic.hpp"

using namespace ccl;
using namespace ccl::test;

constexpr auto all_play = [](int ranks) {
  return plays<AllReduce, OrderedTree>(ranks, 8) && plays<Reduce, OrderedTree>(ranks, 1, 0) &&
         plays<Reduce, OrderedTree>(ranks, 1, ranks / 2) &&
         plays<Reduce, OrderedTree>(ranks, 2, ranks - 1);
};
static_assert(proved<all_play>);

TEST_CASE("ordered tree: plays to the end for 2 to 17 ranks") {
  CHECK(fails_for(all_play) == 0);
}

TEST_CASE("ordered tree: plays to the end at every root, over wires of any length") {
  for (const int ranks : {2, 3, 5, 8, 13, 16, 24, 31}) {
    for (const int slots : {1, 2, 3, 4, 8}) {
      INFO(ranks << " ranks, wires of " << slots);
      CHECK(plays<AllReduce, OrderedTree>(ranks, slots));
      for (int root = 0; root < ranks; ++root) {
        INFO("root " << root);
        CHECK(plays<Reduce, OrderedTree>(ranks, slots, root));
      }
    }
  }
}

TEST_CASE("ordered tree: each send has a receiver, and data of rank 0 reaches a root") {
  for (int ranks = 2; ranks <= 40; ++ranks) {
    for (int root = 0; root < ranks; ++root) {
      const auto sinks = peers_of<OrderedTree>(ranks, 0, root);
      INFO(ranks << " ranks, root " << root);
      CHECK(peers_agree(sinks));
      if (root > 0) CHECK(sinks[0].out.count(root) == 1);
      for (const PeerSink& sink : sinks) {
        CHECK(int(sink.in.size()) <= OrderedTree::max_wires(ranks));
      }
    }
  }
}
