// Calls of `Auto` on GPUs that allocate nothing once they have run. The driver's GPUs are plain
// memory, and the kernels are functions of this test.
#include <ccl/algo/direct.hpp>
#include <ccl/algo/one_shot.hpp>
#include <ccl/collective/all_to_all_v.hpp>
#include <ccl/collective/send_recv.hpp>
#include <ccl/detail/choose/auto_collective.hpp>
#include <ccl/proto/ll128.hpp>
#include <ccl/proto/simple.hpp>

#include <cstdlib>
#include <new>
#include <thread>
#include <vector>

#include "support/catch.hpp"
#include "support/counted_allocations.hpp"
#include "support/gpu_ranks.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {
using List = AutoOf<Candidate<OneShot, LL128>, Candidate<Direct, Simple>>;
int launches = 0;

template <class Algo, class Proto>
void add_kernel() {
  using Kernels = detail::PeerExchangeKernels<Algo, Proto>;
  Kernels::launch = [](const detail::PeerExchangeWork&, const detail::DeviceTarget&) {
    ++launches;
    return 0;
  };
  Kernels::max_bytes = [](const detail::PeerView&, int) { return Index{1} << 30; };
}

/// Composition of rank 0 of two ranks, each on a GPU.
template <class Op>
struct RankZero {
  using Messages = Collective<Op, List, Auto>;
  std::vector<Result<Communicator>> comms;
  std::vector<Result<Messages>> all{2, fail(Errc::internal, "not created")};
  fake::Stream at{0, {}, {}, false};
  cudaStream_t stream = reinterpret_cast<cudaStream_t>(&at);

  RankZero() {
    (void)gpus(2);
    auto cuda = fake::driver();
    cuda.stream_is_capturing = [](CUstream, CUstreamCaptureStatus* status) {
      *status = CU_STREAM_CAPTURE_STATUS_NONE;
      return CUDA_SUCCESS;
    };
    cuda.stream_get_id = [](CUstream, unsigned long long* number) {
      *number = 1;
      return CUDA_SUCCESS;
    };
    detail::use_cuda_driver(cuda, 2);
    add_kernel<OneShot, LL128>();
    add_kernel<Direct, Simple>();
    comms = create({0, 1});
    std::vector<std::thread> threads;
    for (std::size_t r = 0; r < 2; ++r) {
      REQUIRE(comms[r]);
      threads.emplace_back([this, r] { all[r] = Messages::create(*comms[r]); });
    }
    for (auto& thread : threads) thread.join();
    for (const auto& one : all) {
      INFO((one ? std::string{} : one.error().message()));
      REQUIRE(one);
    }
    launches = 0;
  }
};

/// Allocations of the third of three equal calls.
template <class Call>
int allocations_of(const Call& call) {
  bool well = true;
  for (int i = 0; i < 3; ++i) {
    const auto done = count_allocations(call);
    well = well && done.has_value();
  }
  CHECK(well);
  CHECK(launches >= 3);
  return allocations;
}
}  // namespace

TEST_CASE("Auto: messages to and from a peer allocate nothing once they have run") {
  RankZero<SendRecv> rank;
  const auto& pass = *rank.all[0];
  std::vector<char> out(1 << 20), in(1 << 20);
  for (const Index count : {100, 1 << 20}) {
    CHECK(allocations_of(
              [&] { return pass(out.data(), count, 1, in.data(), count, 1, rank.stream); }) == 0);
  }
  // Of both sizes at once, by two compositions.
  CHECK(allocations_of(
            [&] { return pass(out.data(), 1 << 20, 1, in.data(), 100, 1, rank.stream); }) == 0);
}

TEST_CASE("Auto: an exchange of all ranks allocates nothing once it has run") {
  RankZero<AllToAllV> rank;
  const auto& pass = *rank.all[0];
  std::vector<int> out(1000), in(1000);
  const Index counts_of[] = {10, 20}, offsets[] = {0, 100};
  CHECK(allocations_of([&] {
          return pass(out.data(), counts_of, offsets, in.data(), counts_of, offsets, rank.stream);
        }) == 0);
}
