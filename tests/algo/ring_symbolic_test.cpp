// Proves Ring at compile time for 2 to 17 ranks: complete, nothing counted twice, no deadlock.
#include <ccl/algo/ring.hpp>

#include "algo/symbolic.hpp"
#include "catch.hpp"

using namespace ccl;
using namespace ccl::test;

template <int Ranks>
constexpr bool proved =
    plays<AllReduce, Ring>(Ranks, 2) && plays<AllGather, Ring>(Ranks, 2) &&
    plays<ReduceScatter, Ring>(Ranks, 2) && plays<Broadcast, Ring>(Ranks, 1, Ranks - 1) &&
    plays<Reduce, Ring>(Ranks, 1, Ranks / 2);
static_assert(proved<2> && proved<3> && proved<4> && proved<5> && proved<6>);
static_assert(proved<7> && proved<8> && proved<9> && proved<10> && proved<11>);
static_assert(proved<12> && proved<13> && proved<14>);
static_assert(proved<15> && proved<16> && proved<17>);
// A rank that receives and sends in one step needs a second slot.
static_assert(!plays<AllReduce, Ring>(8, 1));

TEST_CASE("ring: proved at compile time for 2 to 17 ranks") {
  SUCCEED();
}
