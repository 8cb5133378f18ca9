// Proves Pairwise at compile time for 2 to 17 ranks: it is complete, counts nothing twice and
// cannot deadlock.
#include <ccl/algo/pairwise.hpp>

#include "support/catch.hpp"
#include "support/symbolic.hpp"

using namespace ccl;
using namespace ccl::test;

static_assert(proved<[](int ranks) {
  return exchanges<Pairwise>(ranks, 1) && exchanges<Pairwise>(ranks, 2);
}>);

TEST_CASE("pairwise: proved at compile time for 2 to 17 ranks") {
  SUCCEED();
}
