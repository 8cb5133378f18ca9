#include <ccl/algo/rank_counts.hpp>

#include "support/catch.hpp"

using namespace ccl;

TEST_CASE("a list of rank counts contains just its own") {
  using Mine = RankCounts<3, 6>;
  STATIC_REQUIRE(Mine::contains(3));
  STATIC_REQUIRE(Mine::contains(6));
  STATIC_REQUIRE_FALSE(Mine::contains(4));
  STATIC_REQUIRE_FALSE(RankCounts<>::contains(1));
}

TEST_CASE("any count of a peer view is contained, and none above") {
  STATIC_REQUIRE(AnyRankCount::contains(1));
  STATIC_REQUIRE(AnyRankCount::contains(max_view_ranks));
  STATIC_REQUIRE_FALSE(AnyRankCount::contains(max_view_ranks + 1));
}
