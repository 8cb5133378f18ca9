// Proves Pat at compile time for 2 to 9 ranks, and for more at run time: it is complete, counts
// nothing twice and cannot deadlock. Its order of nodes is tested for more ranks.
#include <ccl/algo/pat.hpp>

#include <set>
#include <vector>

#include "support/catch.hpp"
#include "support/symbolic.hpp"

using namespace ccl;
using namespace ccl::test;

constexpr auto all_play = [](int ranks) {
  return plays<AllGather, Pat>(ranks, 2) && plays<ReduceScatter, Pat>(ranks, 2) &&
         plays<AllGather, Pat>(ranks, 8) && plays<ReduceScatter, Pat>(ranks, 8) &&
         plays<Broadcast, Pat>(ranks, 2) && plays<Reduce, Pat>(ranks, 2);
};
static_assert(proved<all_play>);
// A rank that receives and sends in one step needs a second slot.
static_assert(!plays<ReduceScatter, Pat>(6, 1));

TEST_CASE("pat: plays to the end for 2 to 17 ranks") {
  CHECK(fails_for(all_play) == 0);
}

TEST_CASE("pat: plays to the end at more ranks, over wires of two chunks and of more") {
  for (const int ranks : {18, 23, 24, 29, 31}) {
    for (const int slots : {2, 4, 8}) {
      INFO(ranks << " ranks, wires of " << slots);
      CHECK(plays<AllGather, Pat>(ranks, slots));
      CHECK(plays<ReduceScatter, Pat>(ranks, slots));
    }
  }
}

TEST_CASE("pat: every node once, children before their parent, and the same way back") {
  for (int ranks = 2; ranks <= 140; ++ranks) {
    for (const int block : {4, 8, 16, 256}) {
      INFO(ranks << " ranks, blocks of " << block);
      const Pat::Nodes nodes{ranks, block};
      std::vector<int> order;
      std::set<int> seen;
      for (int n = nodes.first(); n >= 0 && int(order.size()) <= ranks; n = nodes.after(n)) {
        for (const int child : detail::binary_tree(n, ranks).down) {
          if (child >= 0) REQUIRE(seen.count(child) == 1);
        }
        REQUIRE((n >= 0 && n < ranks));
        REQUIRE(seen.insert(n).second);
        order.push_back(n);
      }
      REQUIRE(int(order.size()) == ranks);
      REQUIRE(order.back() == Pat::Nodes::last());
      for (int i = ranks - 1; i > 0; --i) REQUIRE(nodes.before(order[i]) == order[i - 1]);
      REQUIRE(nodes.before(order[0]) == -1);
    }
  }
}

TEST_CASE("pat: a rank has 2 log2(R) peers, and half of its messages go to a neighbor") {
  for (int ranks = 2; ranks <= 65; ++ranks) {
    const auto sinks = peers_of<Pat>(ranks);
    CHECK(peers_agree(sinks));
    for (const PeerSink& sink : sinks) {
      CHECK(int(sink.in.size()) <= Pat::max_wires(ranks));
      CHECK(sink.in == sink.out);
    }
    int next_listener = 0;
    for (int n = 1; n < ranks; ++n) {
      const int hop = detail::binary_tree(n, ranks).up - n;
      next_listener += hop == 1 || hop == -1 ? 1 : 0;
    }
    CHECK(2 * next_listener >= ranks - 1);
  }
}
