// Ring position in a register, compared with one in memory. Tree positions are proved with the
// algorithms.
#include <ccl/types/position.hpp>

#include <vector>

#include "support/catch.hpp"

using namespace ccl;

TEST_CASE("a position that holds its ring in a register is the same position") {
  for (const int ranks : {1, 2, 3, 8, 15, 16, 17, 40}) {
    std::vector<int> order;
    for (int i = 0; i < ranks; ++i) order.push_back((i * 7 + 3) % ranks);  // 7 divides none of them
    for (int place = 0; place < ranks; ++place) {
      const RingPosition position{place, ranks, order.data()};
      const NearRingPosition close{position};
      REQUIRE(close.ranks == ranks);
      REQUIRE(close.rank() == position.rank());
      REQUIRE(close.prev() == position.prev());
      REQUIRE(close.next() == position.next());
      for (int n = 0; n <= ranks; ++n) {
        REQUIRE(close.behind(n) == position.behind(n));
        REQUIRE(close.ahead(n) == position.ahead(n));
      }
      for (int r = 0; r < ranks; ++r) REQUIRE(close.distance_from(r) == position.distance_from(r));
    }
  }
}
