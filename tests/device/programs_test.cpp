// Random programs of all calls of the device-side interface, for 2 to 8 ranks on CPU lanes. Ranks
// are held up only by each other: a fast rank is launches ahead where the interface lets it.
#include <ccl/device/tiles.hpp>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "support/brief.hpp"
#include "support/catch.hpp"
#include "support/device_programs.hpp"
#include "support/device_world.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {

using Solo = detail::SoloLane;
using Program = DeviceProgram<Solo>;

constexpr int blocks = 2;
#if defined(CCL_TEST_LONG)
constexpr int programs = 100'000;
#else
constexpr int programs = brief ? 3'000 : 10'000;
#endif

/// Runs the programs from `first` on. Returns the number of wrong results.
long run_programs(int ranks, Word first, int count) {
  DeviceWorld world{ranks, Program::needs(ranks, blocks), Program::window_bytes(ranks, blocks)};
  std::atomic<long> wrong{0};
  std::vector<std::thread> threads;
  std::vector<std::unique_ptr<detail::LaneBarrier>> ends;
  for (int r = 0; r < ranks; ++r) {
    auto& end = *ends.emplace_back(std::make_unique<detail::LaneBarrier>(blocks));
    for (int b = 0; b < blocks; ++b) {
      threads.emplace_back([&, r, b] {
        ProgramMemory memory;
        Program program{Solo{}, world.team(r), b, blocks, memory};
        for (int n = 0; n < count && wrong == 0; ++n) {
          if (const long found = program.play(first + Word(n)); found > 0) wrong += found;
          end.arrive_and_wait();  // the next launch begins when this one has ended
        }
      });
    }
  }
  for (auto& thread : threads) thread.join();
  return wrong + (world.failed() ? 1 : 0);
}

}  // namespace

TEST_CASE("random programs of calls are right for 2 to 8 ranks") {
  detail::crowded = true;  // a lane that waits gives its core to another
  // More ranks than cores take longer.
  constexpr int parts[] = {38, 24, 14, 9, 6, 5, 4};
  for (int ranks = 2; ranks <= 8; ++ranks) {
    INFO(ranks << " ranks");
    const int count = programs / 100 * parts[ranks - 2];
    CHECK(run_programs(ranks, Word(ranks) * 1'000'000, count) == 0);
  }
}
