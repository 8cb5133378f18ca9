// Proves Bruck at compile time for 2 to 17 ranks: it is complete, counts nothing twice and cannot
// deadlock.
#include <ccl/algo/bruck.hpp>

#include "support/catch.hpp"
#include "support/symbolic.hpp"

using namespace ccl;
using namespace ccl::test;

static_assert(proved<[](int ranks) {
  return plays<AllGather, Bruck>(ranks, 1) && plays<AllGather, Bruck>(ranks, 8);
}>);

TEST_CASE("bruck: proved at compile time for 2 to 17 ranks") {
  SUCCEED();
}
