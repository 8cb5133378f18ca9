// Proves Ring at compile time for 2 to 17 ranks: it is complete, counts nothing twice and cannot
// deadlock.
#include <ccl/algo/ring.hpp>

#include "support/catch.hpp"
#include "support/symbolic.hpp"

using namespace ccl;
using namespace ccl::test;

static_assert(proved<[](int ranks) {
  return plays<AllReduce, Ring>(ranks, 2) && plays<AllGather, Ring>(ranks, 2) &&
         plays<ReduceScatter, Ring>(ranks, 2) && plays<Broadcast, Ring>(ranks, 1, ranks - 1) &&
         plays<Reduce, Ring>(ranks, 1, ranks / 2);
}>);
// A rank that receives and sends in one step needs a second slot.
static_assert(!plays<AllReduce, Ring>(8, 1));

TEST_CASE("ring: proved at compile time for 2 to 17 ranks") {
  SUCCEED();
}
