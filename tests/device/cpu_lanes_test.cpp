// A kernel of the device-side interface on ranks of a communicator of CPU threads, by public names.
#include <ccl/device/cpu_lanes.hpp>
#include <ccl/device/device_comm.hpp>
#include <ccl/device/tiles.hpp>

#include <atomic>
#include <thread>
#include <vector>

#include "support/catch.hpp"

namespace {
using Sums = ccl::Tiles<ccl::SoloLane, float, ccl::TileShape<4, 8>, ccl::LL>;

ccl::Result<float> kernel(const ccl::DeviceComm& device) {
  const ccl::Team& team = device.team();
  alignas(16) float tile[Sums::elements];
  ccl::TeamSession session{ccl::SoloLane{}, team, 0, 1};
  const int me = team.rank(), next = (me + 1) % team.ranks();
  const int before = (me + team.ranks() - 1) % team.ranks();
  const float mine = float(me + 1);
  session.put_signal(next, 0, &mine, 1, 0);
  if (!session.wait(before, 0)) return ccl::fail(device.status().error());
  for (float& value : tile) value = team.window<float>(me)[0];
  Sums sums{session};
  if (!sums.all_reduce(0, tile)) return ccl::fail(device.status().error());
  return tile[Sums::elements - 1];
}

ccl::Result<float> run(const ccl::Communicator& comm) {
  CCL_TRY(const auto memory, ccl::SharedMemory::allocate(comm, 1024));
  CCL_TRY(const auto window, ccl::Window::create(comm, memory));
  CCL_TRY(const auto device,
          ccl::DeviceComm::create(
              comm, window, {.blocks = 1, .signals = 1, .ll_bytes = Sums::bytes(1, comm.ranks())}));
  CCL_TRY(const float sum, kernel(device));
  CCL_CHECK(device.close());
  CCL_CHECK(comm.finalize());
  return sum;
}
}  // namespace

TEST_CASE("a kernel runs on the CPU ranks of a communicator") {
  ccl::Config config;
  config.device = ccl::Config::cpu;
  const auto ranks = ccl::Communicator::create_all(3, config);
  REQUIRE(ranks.has_value());
  std::atomic<int> right{0};
  std::vector<std::thread> threads;
  for (const ccl::Communicator& comm : *ranks) {
    threads.emplace_back([&] {
      const auto sum = run(comm);
      right += int(sum && *sum == 6);
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(right == 3);
}
