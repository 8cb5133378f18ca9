#include <ccl/algo/copy_engine.hpp>
#include <ccl/algo/direct.hpp>
#include <ccl/algo/one_shot.hpp>
#include <ccl/algo/two_shot.hpp>
#include <ccl/choose/peer_candidates.hpp>
#include <ccl/detail/compose/creation.hpp>
#include <ccl/detail/rows/fused_op.hpp>

#include "support/catch.hpp"

using namespace ccl;
using detail::max_ranks_of;
using detail::takes_ranks;

TEST_CASE("an algorithm over peer memory can have kernels for all ranks of a peer view") {
  STATIC_REQUIRE(max_ranks_of<AllReduce, OneShot>() == max_view_ranks);
  STATIC_REQUIRE(takes_ranks<AllReduce, OneShot>(max_view_ranks));
  STATIC_REQUIRE_FALSE(takes_ranks<AllReduce, OneShot>(max_view_ranks + 1));
  STATIC_REQUIRE_FALSE(takes_ranks<AllReduce, OneShot>(1));
}

TEST_CASE("kernels that are compiled for their number of ranks, and copies, have no more than 8") {
  using Fused = detail::FusedOp<void, void>;
  STATIC_REQUIRE(max_ranks_of<Fused, TwoShot>() == max_unrolled_ranks);
  STATIC_REQUIRE(takes_ranks<Fused, TwoShot>(2));
  STATIC_REQUIRE(takes_ranks<Fused, TwoShot>(max_unrolled_ranks));
  STATIC_REQUIRE_FALSE(takes_ranks<Fused, TwoShot>(max_unrolled_ranks + 1));
  STATIC_REQUIRE_FALSE(takes_ranks<Fused, detail::ForRanks<TwoShot, RankCounts<2>>>(4));
  STATIC_REQUIRE(max_ranks_of<AllToAll, CopyEngine>() == max_unrolled_ranks);
  STATIC_REQUIRE(takes_ranks<AllToAll, CopyEngine>(3));
  STATIC_REQUIRE_FALSE(takes_ranks<AllToAll, CopyEngine>(max_unrolled_ranks + 1));
}

TEST_CASE("an exchange takes any number of ranks of a peer view, listed or not") {
  STATIC_REQUIRE(takes_ranks<SendRecv, detail::OneShotOfFew>(3));
  STATIC_REQUIRE(takes_ranks<SendRecv, detail::OneShotOfFew>(max_view_ranks));
  STATIC_REQUIRE_FALSE(takes_ranks<SendRecv, OneShot>(max_view_ranks + 1));
}

TEST_CASE("candidates name the numbers of ranks of their kernels") {
  STATIC_REQUIRE(takes_ranks<AllReduce, detail::TwoShotOfFew>(8));
  STATIC_REQUIRE_FALSE(takes_ranks<AllReduce, detail::TwoShotOfFew>(9));
  STATIC_REQUIRE_FALSE(takes_ranks<AllReduce, detail::TwoShotOfMany>(8));
  STATIC_REQUIRE(takes_ranks<AllReduce, detail::TwoShotOfMany>(9));
  STATIC_REQUIRE(takes_ranks<AllReduce, detail::TwoShotOfMany>(max_view_ranks));
  STATIC_REQUIRE(takes_ranks<AllReduce, detail::TwoShotOfEight>(8));
  STATIC_REQUIRE_FALSE(takes_ranks<AllReduce, detail::TwoShotOfEight>(7));
}
