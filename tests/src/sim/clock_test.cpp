#include "sim/clock.hpp"

#include <random>
#include <utility>
#include <vector>

#include "support/catch.hpp"

using ccl::detail::SimClock;

TEST_CASE("the clock: the earliest first, and the lowest number of one time") {
  SimClock clock;
  std::mt19937 random{1};
  // Near, far, far beyond the boxes, and many at one time.
  const auto later = [&](double us) {
    switch (random() % 4) {
      case 0:
        return us;
      case 1:
        return us + double(random() % 1000) * 0.01;
      case 2:
        return us + double(random() % 3000);
      default:
        return us + double(random() % 100) * 1e4;
    }
  };
  int added = 0;
  for (; added < 100; ++added) clock.add(later(0), added);
  std::pair<double, int> last{-1, -1};
  double us = 0;
  int who = 0, taken = 0;
  std::vector<char> seen(20000);
  while (clock.take(us, who)) {
    ++taken;
    CHECK_FALSE(us < last.first);
    CHECK(seen[std::size_t(who)]++ == 0);
    last = {us, who};
    for (int n = 0; n < 2 && added < int(seen.size()); ++n, ++added) clock.add(later(us), added);
  }
  CHECK(taken == added);
}

TEST_CASE("the clock: ties go by number") {
  SimClock clock;
  for (const int who : {5, 3, 9, 1}) clock.add(7.25, who);
  double us = 0;
  for (const int who : {1, 3, 5, 9}) {
    int got = 0;
    REQUIRE(clock.take(us, got));
    CHECK(got == who);
  }
  int none = 0;
  CHECK_FALSE(clock.take(us, none));
}
