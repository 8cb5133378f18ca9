// Proves OrderedChain at compile time for 2 to 9 ranks, and for more at run time: it is complete,
// counts nothing twice and cannot deadlock.
#include <ccl/algo/ordered_chain.hpp>

#include "support/catch.hpp"
#include "support/symbolic.hpp"

using namespace ccl;
using namespace ccl::test;

constexpr auto all_play = [](int ranks) {
  return plays<ReduceScatter, OrderedChain>(ranks, 1) &&
         plays<ReduceScatter, OrderedChain>(ranks, 2);
};
static_assert(proved<all_play>);

TEST_CASE("ordered chain: plays to the end for 2 to 17 ranks") {
  CHECK(fails_for(all_play) == 0);
}

TEST_CASE("ordered chain: plays to the end over wires of any length") {
  for (const int ranks : {2, 3, 5, 8, 13, 16, 24, 31}) {
    for (const int slots : {1, 2, 3, 4, 8}) {
      INFO(ranks << " ranks, wires of " << slots);
      CHECK(plays<ReduceScatter, OrderedChain>(ranks, slots));
    }
  }
}

TEST_CASE("ordered chain: each send has a receiver, and data of rank 0 reaches every rank") {
  for (int ranks = 2; ranks <= 40; ++ranks) {
    const auto sinks = peers_of<OrderedChain>(ranks);
    INFO(ranks << " ranks");
    CHECK(peers_agree(sinks));
    for (const PeerSink& sink : sinks) {
      CHECK_FALSE(sink.repeats);
      CHECK(int(sink.in.size()) <= OrderedChain::max_wires(ranks));
      CHECK(int(sink.out.size()) == (sink.rank() == 0 ? ranks - 1 : 1));
    }
  }
}
