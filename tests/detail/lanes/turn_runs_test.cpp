// The order in which pieces of several runs take turns.
#include <ccl/detail/lanes/turn_runs.hpp>

#include <random>
#include <vector>

#include "support/catch.hpp"

using namespace ccl;
using namespace ccl::detail;

namespace {
TurnRuns runs_of(const std::vector<Index>& bytes) {
  TurnRuns runs;
  for (const Index n : bytes) runs.add(nullptr, nullptr, n);
  return runs;
}
struct Step {
  int run;
  Index at;
  bool operator==(const Step&) const = default;
};
std::vector<Step> steps_of(const std::vector<Index>& bytes, int first, Index piece) {
  const TurnRuns runs = runs_of(bytes);
  std::vector<Step> steps;
  for (TurnCursor turn{runs, first, piece}; turn.left(); turn.next()) {
    steps.push_back({turn.run(), turn.at()});
    if (steps.size() > 1000) break;
  }
  return steps;
}
}  // namespace

TEST_CASE("pieces of all runs take turns, and a run that has ended is left out") {
  using Steps = std::vector<Step>;
  CHECK(steps_of({}, 0, 10).empty());
  CHECK(steps_of({0, 0}, 1, 10).empty());
  CHECK(steps_of({25}, 0, 10) == Steps{{0, 0}, {0, 10}, {0, 20}});
  CHECK(steps_of({20, 20}, 1, 10) == Steps{{1, 0}, {0, 0}, {1, 10}, {0, 10}});
  CHECK(steps_of({11, 0, 30}, 0, 10) == Steps{{0, 0}, {2, 0}, {0, 10}, {2, 10}, {2, 20}});
  CHECK(steps_of({11, 0, 30}, 1, 10) == Steps{{2, 0}, {0, 0}, {2, 10}, {0, 10}, {2, 20}});
}

TEST_CASE("every piece has one turn") {
  std::mt19937 random{3};
  for (int n = 0; n < 300; ++n) {
    std::vector<Index> bytes(1 + random() % unsigned(TurnRuns::most));
    for (Index& b : bytes) b = random() % 4 == 0 ? 0 : Index(random() % 100);
    const Index piece = 1 + Index(random() % 20);
    const int first = int(random() % unsigned(bytes.size()));
    std::vector<Index> next(bytes.size(), 0);
    for (const Step& step : steps_of(bytes, first, piece)) {
      REQUIRE(step.at == next[std::size_t(step.run)]);
      REQUIRE(step.at < bytes[std::size_t(step.run)]);
      next[std::size_t(step.run)] += piece;
    }
    for (std::size_t i = 0; i < bytes.size(); ++i) REQUIRE(next[i] >= bytes[i]);
  }
}
