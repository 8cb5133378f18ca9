// Proves Ring at compile time for 2 to 9 ranks, and for more at run time: it is complete, counts
// nothing twice and cannot deadlock.
#include <ccl/algo/ring.hpp>

#include "support/catch.hpp"
#include "support/symbolic.hpp"

using namespace ccl;
using namespace ccl::test;

constexpr auto all_play = [](int ranks) {
  return plays<AllReduce, Ring>(ranks, 2) && plays<AllGather, Ring>(ranks, 2) &&
         plays<ReduceScatter, Ring>(ranks, 2) && plays<Broadcast, Ring>(ranks, 1, ranks - 1) &&
         plays<Reduce, Ring>(ranks, 1, ranks / 2);
};
static_assert(proved<all_play>);
// A rank that receives and sends in one step needs a second slot.
static_assert(!plays<AllReduce, Ring>(8, 1));

TEST_CASE("ring: plays to the end for 2 to 17 ranks") {
  CHECK(fails_for(all_play) == 0);
}
