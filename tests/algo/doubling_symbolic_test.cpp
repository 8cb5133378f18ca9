// Proves Doubling at compile time for 2 to 17 ranks: complete, nothing counted twice, no deadlock.
#include <ccl/algo/doubling.hpp>

#include "algo/symbolic.hpp"
#include "catch.hpp"

using namespace ccl;
using namespace ccl::test;

template <int Ranks>
constexpr bool proved =
    plays<AllReduce, Doubling>(Ranks, 2) && plays<AllGather, Doubling>(Ranks, 1) &&
    plays<AllGather, Doubling>(Ranks, 8);
static_assert(proved<2> && proved<3> && proved<4> && proved<5> && proved<6>);
static_assert(proved<7> && proved<8> && proved<9> && proved<10> && proved<11>);
static_assert(proved<12> && proved<13> && proved<14>);
static_assert(proved<15> && proved<16> && proved<17>);

TEST_CASE("doubling: proved at compile time for 2 to 17 ranks") {
  SUCCEED();
}
