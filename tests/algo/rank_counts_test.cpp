#include <ccl/algo/rank_counts.hpp>

#include <type_traits>

#include "support/catch.hpp"

using namespace ccl;

TEST_CASE("a kernel also runs fewer ranks, but more than half") {
  using Default = RankCounts<2, 4, 8>;
  constexpr int kernels[] = {0, 0, 2, 4, 4, 8, 8, 8, 8, 0};
  for (int ranks = 0; ranks < 10; ++ranks) {
    CHECK(Default::kernel_for(ranks) == kernels[ranks]);
    CHECK(Default::contains(ranks) == (kernels[ranks] != 0));
  }
}

TEST_CASE("a number of ranks has the smallest kernel that runs it, in any order of the list") {
  using Mine = RankCounts<6, 3>;
  STATIC_REQUIRE(Mine::kernel_for(3) == 3);
  STATIC_REQUIRE(Mine::kernel_for(2) == 3);
  STATIC_REQUIRE(Mine::kernel_for(4) == 6);
  STATIC_REQUIRE_FALSE(Mine::contains(1));
  STATIC_REQUIRE_FALSE(Mine::contains(7));
  STATIC_REQUIRE_FALSE(RankCounts<8>::contains(4));
  STATIC_REQUIRE(RankCounts<1, 2>::kernel_for(1) == 1);
  STATIC_REQUIRE_FALSE(RankCounts<>::contains(1));
}

TEST_CASE("a kernel for more ranks than are unrolled runs all numbers above those") {
  using Default = RankCounts<2, 4, 8, max_view_ranks>;
  for (int ranks = 2; ranks <= max_view_ranks + 1; ++ranks) {
    const int kernel = ranks <= 8                ? RankCounts<2, 4, 8>::kernel_for(ranks)
                       : ranks <= max_view_ranks ? max_view_ranks
                                                 : 0;
    CHECK(Default::kernel_for(ranks) == kernel);
  }
  STATIC_REQUIRE(Default::wide == max_view_ranks);
  STATIC_REQUIRE(std::is_same_v<Default::Kernels, RankCounts<2, 4, 8>>);
  STATIC_REQUIRE(RankCounts<2, 4, 8>::wide == 0);
  STATIC_REQUIRE(RankCounts<16>::kernel_for(9) == 16);
  STATIC_REQUIRE_FALSE(RankCounts<16>::contains(8));  // such a view has no table
  STATIC_REQUIRE_FALSE(RankCounts<8, 16>::contains(3));
  STATIC_REQUIRE(std::is_same_v<RankCounts<16>::Kernels, RankCounts<>>);
}

TEST_CASE("an exact list of rank counts contains just its own") {
  STATIC_REQUIRE(ExactRankCounts<8>::contains(8));
  STATIC_REQUIRE_FALSE(ExactRankCounts<8>::contains(7));
}

TEST_CASE("any count of a peer view is contained, and none above") {
  STATIC_REQUIRE(AnyRankCount::contains(1));
  STATIC_REQUIRE(AnyRankCount::contains(max_view_ranks));
  STATIC_REQUIRE_FALSE(AnyRankCount::contains(max_view_ranks + 1));
  STATIC_REQUIRE(AnyRankCountUpTo<8>::contains(8));
  STATIC_REQUIRE_FALSE(AnyRankCountUpTo<8>::contains(9));
}
