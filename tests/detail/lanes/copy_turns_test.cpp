// Runs that are copied in turns.
#include <ccl/detail/lanes/copy_turns.hpp>
#include <ccl/detail/lanes/host_lanes.hpp>

#include <algorithm>
#include <random>
#include <vector>

#include "support/catch.hpp"

using namespace ccl;
using namespace ccl::detail;

TEST_CASE("runs are copied whole, whatever their alignment and length") {
  std::mt19937 random{4};
  for (int n = 0; n < 50; ++n) {
    constexpr Index most = 2000, gap = 32;
    const int count = 1 + int(random() % unsigned(TurnRuns::most));
    std::vector<char> source(std::size_t((most + gap) * count)), target(source.size(), 0x5a);
    std::vector<char> expected = target;
    for (char& c : source) c = char(random());
    TurnRuns runs;
    for (int i = 0; i < count; ++i) {
      const Index to = i * (most + gap) + Index(random() % 17), bytes = Index(random() % most);
      const Index from = i * (most + gap) + Index(random() % 17);
      runs.add(target.data() + to, source.data() + from, bytes);
      std::copy_n(source.data() + from, bytes, expected.data() + to);
    }
    copy_long_in_turns(SoloLane{}, runs, int(random() % unsigned(count)), n % 2 == 0);
    REQUIRE(target == expected);
  }
}
