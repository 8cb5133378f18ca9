// Random programs of the device-side interface among more than 8 ranks, on GPUs that are played on
// the CPU.
#define CCL_PLAYED_WARP 8  // lanes of a warp
#include "support/played/played_gpus.hpp"
// Kernels come before other headers of ccl.
#include <ccl/collective.cuh>
#include <ccl/device.cuh>

#include <string>
#include <vector>

#include "support/played/program_kernel.hpp"
#include "support/played/wide.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {

constexpr int launches = 30;
using Lanes = BlockLanes<32>;
using Program = DeviceProgram<Lanes, Team::max_ranks>;

std::string run_rank(const played::Rank& rank) {
  const auto memory = SharedMemory::allocate(rank.comm, Program::window_bytes(rank.ranks, 1));
  const auto window = Window::create(rank.comm, *memory);
  if (!window) return window.error().message();
  const auto device = DeviceComm::create(rank.comm, *window, Program::needs(rank.ranks, 1));
  if (!device) return device.error().message();
  ProgramMemory shared;
  Word wrong = 0;
  for (Word n = 0; n < launches; ++n) {
    const auto e = detail::CudaExecutor::launch_kernel(played::run_program<Program>,
                                                       {1, Lanes::width}, nullptr, rank.stream,
                                                       device->team(), &shared, n, &wrong);
    if (e != cudaSuccess) return "a launch failed";
  }
  rank.synchronize();
  if (const auto status = device->status(); !status) return status.error().message();
  if (*device->team().data().epochs() != launches) return "a kernel did not run";
  return wrong == 0 ? std::string{} : std::to_string(wrong) + " wrong results";
}

}  // namespace

TEST_CASE("random programs of kernels are right among 9 to 72 ranks of a host") {
  for (const int ranks : played::wide_rank_counts()) {
    INFO(ranks << " ranks");
    auto comms = played::wide_ranks(ranks);
    played::on_each(comms, run_rank);
  }
}
