// Random programs of kernels that communicate, on GPUs that are played on the CPU: between
// collectives of their communicator, eagerly and in graphs of both.
#include "support/played/played_gpus.hpp"
// Kernels come before other headers of ccl.
#include <ccl/algo/one_shot.hpp>
#include <ccl/collective.cuh>
#include <ccl/device.cuh>
#include <ccl/transport/p2p.hpp>

#include <random>
#include <string>
#include <vector>

#include "support/played/calls.hpp"
#include "support/played/capture.hpp"
#include "support/played/program_kernel.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {

constexpr int lanes = 64, blocks = 2, count = 200;
using Lanes = BlockLanes<lanes>;
using Program = DeviceProgram<Lanes>;
using Sums = Collective<AllReduce, OneShot, LL128, P2pTransport>;
constexpr Plan small{.channels = 1, .slot_count = 2, .slot_bytes = 64 << 10};

#if defined(CCL_TEST_LONG)
constexpr int turns = 4'000;
#else
constexpr int turns = 40;
#endif

/// Queues kernels and collectives of one rank, in the order that all ranks take.
class Queue {
 public:
  Queue(const played::Rank& rank, const DeviceComm& device, const Sums& sums)
      : rank_{rank}, device_{device}, sums_{sums}, random_(unsigned(rank.ranks)) {}

  /// Takes some turns. Returns a problem, or an empty text.
  std::string run() {
    for (int n = 0; n < turns; ++n) {
      const std::string why = next(5) == 0 ? replay() : queue();
      if (!why.empty()) return why;
      if (n % 16 == 15) rank_.synchronize();
    }
    rank_.synchronize();
    if (const auto status = device_.status(); !status) return status.error().message();
    if (wrong_ != 0) return std::to_string(wrong_) + " wrong results in kernels";
    if (*device_.team().data().epochs() != launches_) return "a kernel did not run";
    const float wanted = has_summed_ ? float(rank_.ranks * (rank_.ranks + 1) / 2) : -1;
    for (const float is : sum_) {
      if (is != wanted) return "a wrong sum of the communicator";
    }
    return {};
  }

 private:
  int next(int below) { return int(random_() % unsigned(below)); }

  /// Queues one kernel or one collective.
  std::string queue() {
    if (next(3) == 0) {
      has_summed_ = true;
      const auto done = sums_(in_.data(), sum_.data(), count, Sum{}, rank_.stream);
      return done ? std::string{} : done.error().message();
    }
    const int grid = 1 + next(blocks);
    ++launches_;
    const auto e = detail::CudaExecutor::launch_kernel(played::run_program<Program>, {grid, lanes},
                                                       nullptr, rank_.stream, device_.team(),
                                                       memory_.data(), Word(random_()), &wrong_);
    return e == cudaSuccess ? std::string{} : "a launch failed";
  }
  /// Captures some of them, and replays the graph a few times.
  std::string replay() {
    auto* const stream = played::stream_of(rank_.stream);
    if (played::Capture::begin(*stream) != CUDA_SUCCESS) return "no capture";
    std::string why;
    const Word before = launches_;
    for (int left = 1 + next(4); left > 0 && why.empty(); --left) why = queue();
    played::Graph* captured = nullptr;
    const auto capture = stream->capture;
    const auto ended = capture->end(*stream, &captured);
    const std::shared_ptr<played::Graph> graph{captured};
    if (!why.empty()) return why;
    if (ended != CUDA_SUCCESS) return "the capture did not end";
    const int replays = 1 + next(4);
    launches_ += Word(replays - 1) * (launches_ - before);
    for (int n = 0; n < replays; ++n) {
      if (played::launch_graph(graph, rank_.stream) != CUDA_SUCCESS) return "no replay";
    }
    return {};
  }

  const played::Rank& rank_;
  const DeviceComm& device_;
  const Sums& sums_;
  std::minstd_rand random_;  // the same on all ranks
  std::vector<ProgramMemory> memory_ = std::vector<ProgramMemory>(blocks);
  std::vector<float> in_ = std::vector<float>(count, float(rank_.rank + 1));
  std::vector<float> sum_ = std::vector<float>(count, -1);
  Word wrong_ = 0, launches_ = 0;  // of kernels
  bool has_summed_ = false;
};

std::string run_rank(const played::Rank& rank) {
  const auto memory = SharedMemory::allocate(rank.comm, Program::window_bytes(rank.ranks, blocks));
  const auto window = Window::create(rank.comm, *memory);
  if (!window) return window.error().message();
  const auto device = DeviceComm::create(rank.comm, *window, Program::needs(rank.ranks, blocks));
  if (!device) return device.error().message();
  const auto sums = Sums::create(rank.comm, small);
  if (!sums) return sums.error().message();
  return Queue{rank, *device, *sums}.run();
}

}  // namespace

TEST_CASE("random programs of kernels, collectives and graphs are right for 2 to 8 ranks") {
  played::install(8, 4);
  for (int ranks = 2; ranks <= 8; ++ranks) {
    INFO(ranks << " ranks");
    auto comms = played::create_ranks(ranks);
    played::on_each(comms, run_rank);
  }
}
