// Kernels of GPUs of several hosts, which no NVLink domain joins, on GPUs that are played on the
// CPU: calls to the other hosts go through the proxy.
#include "support/played/played_gpus.hpp"
// Kernels come before other headers of ccl.
#include <ccl/collective.cuh>
#include <ccl/device.cuh>

#include <atomic>
#include <string>
#include <vector>

#include "comm/state.hpp"
#include "gpu/pinned.hpp"
#include "support/environment.hpp"
#include "support/played/calls.hpp"
#include "support/played/capture.hpp"
#include "support/played/program_kernel.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {

constexpr int lanes = 64, blocks = 2, launches = 12, replays = 6;
using Lanes = BlockLanes<lanes>;
using Program = DeviceProgram<Lanes, max_unrolled_ranks, LL, NetworkTeam>;

/// Random programs of a rank: eagerly, and two of them in a graph.
std::string run_rank(const played::Rank& rank, int far) {
  const auto memory = SharedMemory::allocate(rank.comm, Program::window_bytes(rank.ranks, blocks));
  const auto window = Window::create(rank.comm, *memory, WindowReach::near);
  if (!window) return window.error().message();
  const auto lines = DeviceComm::create(rank.comm, *window, {.ll128_bytes = 1024});
  if (far > 0 && (lines || lines.error().code != Errc::not_supported)) return "no refusal";
  const auto device = DeviceComm::create(rank.comm, *window, Program::needs(rank.ranks, blocks));
  if (!device) return device.error().message();
  int found = 0;
  for (int p = 0; p < rank.ranks; ++p) found += !device->network_team().is_near(p);
  if (found != far) return std::to_string(found) + " far ranks";
  std::vector<ProgramMemory> shared(blocks);
  Word wrong = 0;
  const auto launch = [&](Word seed) {
    return detail::CudaExecutor::launch_kernel(played::run_program<Program>, {blocks, lanes},
                                               nullptr, rank.stream, device->network_team(),
                                               shared.data(), seed, &wrong);
  };
  for (Word n = 0; n < launches; ++n) {
    if (launch(n) != cudaSuccess) return "a launch failed";
  }
  rank.synchronize();
  auto* const stream = played::stream_of(rank.stream);
  if (played::Capture::begin(*stream) != CUDA_SUCCESS) return "no capture";
  if (launch(100) != cudaSuccess || launch(101) != cudaSuccess) return "a capture failed";
  played::Graph* captured = nullptr;
  const auto capture = stream->capture;
  const auto ended = capture->end(*stream, &captured);
  const std::shared_ptr<played::Graph> graph{captured};
  if (ended != CUDA_SUCCESS) return "the capture did not end";
  for (int n = 0; n < replays; ++n) {
    if (played::launch_graph(graph, rank.stream) != CUDA_SUCCESS) return "no replay";
  }
  rank.synchronize();
  if (const auto status = device->status(); !status) return status.error().message();
  if (*device->network_team().data().epochs() != launches + 2 * replays)
    return "a kernel did not run";
  if (wrong != 0) return std::to_string(wrong) + " wrong results";
  return played::failure_of(device->close());
}

std::atomic<int> pages{0};  // allocations of pinned memory

/// Counts allocations of pinned memory.
void count_pages(int devices) {
  detail::CudaDriver driver = **detail::cuda_driver();
  static auto* const allocate = driver.mem_host_alloc;
  driver.mem_host_alloc = [](void** at, std::size_t bytes, unsigned flags) {
    ++pages;
    return allocate(at, bytes, flags);
  };
  detail::use_cuda_driver(driver, devices);
}

/// Programs of a rank after which no pinned memory has been allocated, though none is spare.
std::string run_without_pages(const played::Rank& rank) {
  constexpr std::size_t page = 16 << 10;
  const auto memory = SharedMemory::allocate(rank.comm, Program::window_bytes(rank.ranks, blocks));
  const auto window = Window::create(rank.comm, *memory, WindowReach::near);
  const auto device = DeviceComm::create(rank.comm, *window, Program::needs(rank.ranks, blocks));
  if (!device) return device.error().message();
  std::vector<ProgramMemory> shared(blocks);
  Word wrong = 0;
  std::vector<detail::Pinned> held;
  {
    const auto& gpu = *detail::Access::state(rank.comm)->device.gpu;
    const detail::Gpu::Current current{gpu};
    for (const int before = pages; pages == before;) {
      held.push_back(*detail::Pinned::take(gpu.driver(), page));
    }
  }
  if (!rank.comm.barrier()) return "no barrier";
  const int before = pages;
  if (!rank.comm.barrier()) return "no barrier";
  for (Word n = 0; n < launches; ++n) {
    (void)detail::CudaExecutor::launch_kernel(played::run_program<Program>, {blocks, lanes},
                                              nullptr, rank.stream, device->network_team(),
                                              shared.data(), n, &wrong);
  }
  rank.synchronize();
  if (const auto closed = device->close(); !closed) return closed.error().message();
  if (wrong != 0) return "wrong results";
  return pages == before ? "" : std::to_string(pages - before) + " pages";
}

}  // namespace

TEST_CASE("messages go into the memory of a GPU without an allocation") {
  const Environment no_domain{"CCL_MNNVL_ENABLE", "0"};
  played::install(2, 4);
  count_pages(2);
  auto comms = played::create_ranks(2, 1);
  played::on_each(comms, run_without_pages);
}

TEST_CASE("random programs of kernels are right on GPUs of one host and of several") {
  const Environment no_domain{"CCL_MNNVL_ENABLE", "0"};
  played::install(4, 4);
  struct Case {
    int ranks, per_host, far;
  };
  for (const Case& c : {Case{2, 2, 0}, Case{2, 1, 1}, Case{4, 2, 2}}) {
    INFO(c.ranks << " ranks, " << c.per_host << " on a host");
    auto comms = played::create_ranks(c.ranks, c.per_host);
    played::on_each(comms, [&](const played::Rank& rank) { return run_rank(rank, c.far); });
  }
}
