// Proves Halving at compile time for 2 to 9 ranks, and for more at run time: it is complete, counts
// nothing twice and cannot deadlock.
#include <ccl/algo/halving.hpp>

#include "support/catch.hpp"
#include "support/symbolic.hpp"

using namespace ccl;
using namespace ccl::test;

constexpr auto all_play = [](int ranks) {
  return plays<ReduceScatter, Halving>(ranks, 2) && plays<ReduceScatter, Halving>(ranks, 8);
};
static_assert(proved<all_play>);

// A rank that receives and sends in one step needs a second slot.
static_assert(!plays<ReduceScatter, Halving>(6, 1));

TEST_CASE("halving: plays to the end for 2 to 17 ranks") {
  CHECK(fails_for(all_play) == 0);
}

TEST_CASE("halving: plays to the end at more ranks, over wires of two chunks and of more") {
  for (int ranks = 2; ranks <= 31; ++ranks) {
    for (const int slots : {2, 4, 8, 16}) {
      INFO(ranks << " ranks, wires of " << slots);
      CHECK(plays<ReduceScatter, Halving>(ranks, slots));
    }
  }
}

TEST_CASE("halving: who is sent to expects it, and few are") {
  for (int ranks = 2; ranks <= 140; ++ranks) {
    const auto sinks = peers_of<Halving>(ranks, 3);
    INFO(ranks << " ranks");
    CHECK(peers_agree(sinks));
    for (const PeerSink& sink : sinks) {
      CHECK(int(sink.in.size()) <= Halving::max_wires(ranks));
      CHECK(sink.in == sink.out);
    }
  }
}
