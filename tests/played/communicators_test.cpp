// Several communicators at once on GPUs that are played on the CPU, with few multiprocessors; and
// launches that fail.
#include "support/played/played_gpus.hpp"
// Kernels come before other headers of ccl.
#include <ccl/algo/one_shot.hpp>
#include <ccl/algo/tree.hpp>
#include <ccl/collective.cuh>
#include <ccl/transport/p2p.hpp>

#include <random>
#include <string>
#include <vector>

#include "support/environment.hpp"
#include "support/played/calls.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {

using TreeOfGpus = Collective<AllReduce, Tree, LL, P2pTransport>;
constexpr Plan small{.channels = 8, .slot_count = 4, .slot_bytes = 4 << 10};

/// Calls of several communicators of one rank, each on a stream of its own. `order(call)`: the
/// communicator of that call.
template <class F>
std::string calls_on(std::vector<played::Ranks>& worlds, int r, int calls, Index count, F order) {
  const detail::CudaDriver& cuda = **detail::cuda_driver();
  std::vector<TreeOfGpus> trees;
  std::vector<CUstream> streams(worlds.size(), nullptr);
  for (std::size_t w = 0; w < worlds.size(); ++w) {
    auto tree = TreeOfGpus::create(*worlds[w][std::size_t(r)], small);
    if (!tree) return tree.error().message();
    trees.push_back(*tree);
    (void)cuda.stream_create(&streams[w], CU_STREAM_NON_BLOCKING);
  }
  const int ranks = int(worlds[0].size());
  played::Buffers buffers{r, calls, count, count};
  for (int call = 0; call < calls; ++call) {
    const std::size_t w = order(call);
    auto &in = buffers.in[std::size_t(call)], &out = buffers.out[std::size_t(call)];
    const auto done = trees[w](in.data(), out.data(), count, Sum{}, streams[w]);
    if (!done) return done.error().message();
  }
  for (const CUstream stream : streams) {
    (void)cuda.stream_synchronize(stream);
    (void)cuda.stream_destroy(stream);
  }
  return buffers.wrong([&](int call, Index i) { return played::sum_of_elements(ranks, call, i); });
}

}  // namespace

TEST_CASE("three communicators of the same GPUs run at once, in one order on all ranks") {
  constexpr int ranks = 4, calls = 60;
  played::install(ranks, 8);
  std::vector<played::Ranks> worlds;
  for (int w = 0; w < 3; ++w) worlds.push_back(played::create_ranks(ranks));
  played::on_each(worlds[0], [&](const played::Rank& rank) {
    std::mt19937 random{7};  // the same on all ranks
    return calls_on(worlds, rank.rank, calls, 2000, [&](int) { return random() % worlds.size(); });
  });
  CHECK(played::Queue::instance().unplaced().empty());
}

TEST_CASE("the kernels of a rank alone are loaded when its compositions are created") {
  played::install(1, 8);
  auto comms = played::create_ranks(1);
  played::on_each(comms, [&](const played::Rank& rank) -> std::string {
    const auto tree = TreeOfGpus::create(rank.comm, small);
    const auto one_shot =
        Collective<AllReduce, OneShot, LL, P2pTransport>::create(rank.comm, small);
    if (!tree || !one_shot) return "not made";
    std::vector<float> data(100, 1);
    std::vector<double> longs(100, 1);
    if (!(*tree)(data.data(), data.data(), 100, PreMulSum{2.0}, rank.stream)) return "no call";
    if (!(*one_shot)(longs.data(), longs.data(), 100, PreMulSum{3.0}, rank.stream)) return "none";
    rank.synchronize();
    return data[99] == 2 && longs[99] == 3 ? "" : "wrong data";
  });
  CHECK(played::LoadedKernels::instance().late() == 0);
}

TEST_CASE("a rank alone reduces in its GPU's context, whatever context the thread has") {
  played::install(2, 8);
  Config config;
  config.device = 1;
  auto comms = Communicator::create_all(1, config);
  REQUIRE(comms);
  std::vector<Result<Communicator>> own{comms->front()};
  for (const int device : {0, 1}) {
    INFO("a context of device " << device);
    played::on_each(own, [&](const played::Rank& rank) -> std::string {
      fake::contexts() = {fake::further_context(device)};
      const auto tree = TreeOfGpus::create(rank.comm, small);
      if (!tree) return tree.error().message();
      std::vector<float> data(100, 1);
      for (const CUstream stream : {rank.stream, CUstream{}}) {
        const auto done = (*tree)(data.data(), data.data(), 100, PreMulSum{2.0}, stream);
        if (!done) return done.error().message();
        if (fake::contexts() != std::vector<int>{fake::further_context(device)}) {
          return "the thread lost its context";
        }
        fake::contexts() = {1};
        (void)(*detail::cuda_driver())->stream_synchronize(stream);
        fake::contexts() = {fake::further_context(device)};
      }
      fake::contexts() = {1};
      return data[99] == 4 ? "" : "wrong data";
    });
  }
}

TEST_CASE("a launch that fails on one rank fails its call, and no rank waits for good") {
  constexpr int ranks = 3;
  const Environment soon{"CCL_TIMEOUT", "1"};
  played::install(ranks, 8);
  auto comms = played::create_ranks(ranks);
  const auto problems = played::problems_on(comms, [&](const played::Rank& rank) -> std::string {
    const auto tree = TreeOfGpus::create(rank.comm, small);
    if (!tree) return tree.error().message();
    constexpr Index count = 100;
    std::vector<float> data(count, 1);
    const auto call = [&] { return (*tree)(data.data(), data.data(), count, Sum{}, rank.stream); };
    if (rank.rank == 1) played::fail_launch(1, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
    auto done = call();
    if (rank.rank == 1 && done) return "the launch did not fail";
    if (cudaGetLastError() != cudaSuccess) return "the program finds the error, too";
    rank.synchronize();  // the kernels of the others end at their deadline, or sooner
    for (int n = 0; n < 100 && done; ++n) {
      done = call();
      rank.synchronize();
    }
    return done ? std::string{} : done.error().message();
  });
  CHECK(!played::Queue::instance().stands_still());  // no kernel is left
  for (int r = 0; r < ranks; ++r) {
    INFO("rank " << r << ": " << problems[std::size_t(r)]);
    CHECK(!problems[std::size_t(r)].empty());
  }
  CHECK(mentions(problems[1], "launch"));
}
