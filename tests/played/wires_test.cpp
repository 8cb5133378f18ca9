// Collectives over wires whose kernels run on GPUs played on the CPU.
#include "support/played/played_gpus.hpp"
// Kernels come first.
#include <ccl/algo/ring.hpp>
#include <ccl/collective.cuh>

#include <thread>
#include <vector>

#include "support/catch.hpp"
#include "support/gpu_ranks.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {

template <class Algo, class Proto>
void all_reduces(int ranks, int count) {
  played::install(ranks, 4);
  std::vector<int> devices;
  for (int r = 0; r < ranks; ++r) devices.push_back(r);
  const auto comms = create(devices);
  std::vector<std::thread> threads;
  std::vector<std::string> problems(std::size_t(ranks), "");
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      auto& problem = problems[std::size_t(r)];
      if (!comms[std::size_t(r)]) {
        problem = comms[std::size_t(r)].error().message();
        return;
      }
      const auto ring =
          Collective<AllReduce, Algo, Proto, DefaultTransport>::create(*comms[std::size_t(r)]);
      if (!ring) {
        problem = ring.error().message();
        return;
      }
      CUstream stream;
      const detail::CudaDriver& cuda = **detail::cuda_driver();
      (void)cudaSetDevice(r);
      (void)cuda.stream_create(&stream, CU_STREAM_NON_BLOCKING);
      std::vector<float> in(std::size_t(count), float(r + 1)), out(std::size_t(count), -1);
      for (int turn = 0; turn < 3; ++turn) {
        const auto done = (*ring)(in.data(), out.data(), count, Sum{}, stream);
        if (!done) problem = done.error().message();
      }
      (void)cuda.stream_synchronize(stream);
      for (const float is : out) {
        if (is != float(ranks * (ranks + 1) / 2)) problem = "wrong: " + std::to_string(is);
      }
      (void)cuda.stream_destroy(stream);
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& problem : problems) CHECK(problem.empty());
  for (const auto& problem : problems) CHECK(problem == "");
}

}  // namespace

TEST_CASE("a ring's all-reduce runs on played GPUs") {
  all_reduces<Ring, Simple>(2, 1000);
  all_reduces<Ring, LL>(3, 1000);
}
