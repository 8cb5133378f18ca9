// Proves Doubling at compile time for 2 to 9 ranks, and for more at run time: it is complete,
// counts nothing twice and cannot deadlock.
#include <ccl/algo/doubling.hpp>

#include "support/catch.hpp"
#include "support/symbolic.hpp"

using namespace ccl;
using namespace ccl::test;

constexpr auto all_play = [](int ranks) {
  return plays<AllReduce, Doubling>(ranks, 2) && plays<AllGather, Doubling>(ranks, 1) &&
         plays<AllGather, Doubling>(ranks, 8);
};
static_assert(proved<all_play>);

TEST_CASE("doubling: plays to the end for 2 to 17 ranks") {
  CHECK(fails_for(all_play) == 0);
}

TEST_CASE("doubling: who is sent to expects it, once") {
  for (int ranks = 2; ranks <= 33; ++ranks) {
    const auto sinks = peers_of<Doubling>(ranks);
    INFO(ranks << " ranks");
    CHECK(peers_agree(sinks));
    for (const PeerSink& sink : sinks) CHECK_FALSE(sink.repeats);
  }
}
