// Multicast memory of GPU ranks, made over a driver that is a fake: the order of its calls on all
// ranks, calls that fail, and calls that do not return.
#include <ccl/algo/nvls.hpp>
#include <ccl/collective/all_reduce.hpp>
#include <ccl/proto/simple.hpp>
#include <ccl/transport/nvls.hpp>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "comm/state.hpp"
#include "support/environment.hpp"
#include "support/fake_multicast.hpp"
#include "support/gpu_ranks.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {
using Sums = Collective<AllReduce, Nvls, Simple, NvlsTransport>;
using Comms = std::vector<Result<Communicator>>;
constexpr int ranks = 3;
/// Small slots, because the memory of a fake GPU is cleared.
constexpr Plan plan{.channels = 1, .slot_count = 2, .slot_bytes = 64 << 10};

Comms three_ranks() {
  gpus(ranks);
  Comms comms = create({0, 1, 2});
  for (const auto& comm : comms) {
    INFO((comm ? std::string{} : comm.error().message()));
    REQUIRE(comm);
  }
  return comms;
}
/// Lets launches be ordered on streams of the driver.
void order_streams() {
  auto cuda = fake::driver();
  cuda.stream_is_capturing = [](CUstream, CUstreamCaptureStatus* status) {
    *status = CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
  };
  cuda.stream_get_id = [](CUstream stream, unsigned long long* number) {
    *number = reinterpret_cast<std::uintptr_t>(stream);
    return CUDA_SUCCESS;
  };
  cuda.stream_wait_event = [](CUstream, CUevent, unsigned) { return CUDA_SUCCESS; };
  detail::use_cuda_driver(cuda, ranks);
}
/// Creates the composition on all ranks. `then(rank, made)` runs on the thread of each.
template <class F>
std::vector<Error> create_on(Comms& comms, F then) {
  std::vector<Error> errors(comms.size());
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < comms.size(); ++r) {
    threads.emplace_back([&, r] {
      auto made = Sums::create(*comms[r], plan);
      if (!made) errors[r] = made.error();
      then(int(r), made);
    });
  }
  for (auto& thread : threads) thread.join();
  return errors;
}
std::vector<Error> create_on(Comms& comms) {
  return create_on(comms, [](int, const Result<Sums>&) {});
}
bool contains(const Error& error, const std::string& text) {
  INFO(error.message());
  const bool found = error.message().find(text) != std::string::npos;
  CHECK(found);
  return found;
}
}  // namespace

TEST_CASE("no rank binds before all have added their GPUs, and each releases what it bound") {
  const Environment setting{"CCL_NVLS_ENABLE", "1"};
  auto comms = three_ranks();
  FakeMulticast& fake = FakeMulticast::install();
  const auto errors = create_on(comms, [](int rank, const Result<Sums>& made) {
    if (!made) return;
    // Without <ccl/nvls.cuh> there are no kernels for it.
    std::vector<float> data(10);
    const auto called = (*made)(data.data(), data.data(), 10);
    if (called || called.error().code != Errc::no_device_code ||
        called.error().what.find("<ccl/nvls.cuh>") == std::string::npos) {
      FAIL_CHECK("rank " << rank);
    }
  });
  for (const Error& error : errors) CHECK(error.message() == Error{}.message());
  CHECK(fake.so_far() == "granularity create add add add bind bind bind");
  CHECK(fake.early_binds == 0);
  comms.clear();
  CHECK(fake.times("unbind") == ranks);
}

TEST_CASE(
    "a launch by switches has the multicast address, all heads, and as many channels as NCCL") {
  using R = detail::Reduction<Sum, float>;
  using Kernels = detail::SwitchKernels<AllReduce, Nvls, Simple, R>;
  static std::atomic<int> right;
  right = 0;
  const int capability = GENERATE(90, 100);
  static int channels;
  channels = capability == 90 ? 16 : 24;
  Kernels::max_elements = [](const detail::MulticastWork<R>&) { return Index{1} << 20; };
  Kernels::launch = [](const detail::MulticastWork<R>& work, const detail::DeviceTarget&) {
    right += work.all != 0 && work.channels == channels && work.slices == ranks &&
             work.slice == work.peers.rank && work.peers.half_packets == plan.slot_bytes / 16 &&
             work.peers.scratch_of<max_view_ranks>(work.peers.rank) != nullptr;
    return 0;
  };
  const Environment setting{"CCL_NVLS_ENABLE", "1"};
  FakeGpus& fake_gpus = gpus(ranks);
  order_streams();
  for (int r = 0; r < ranks; ++r) fake_gpus.capabilities[r] = capability;
  auto comms = create({0, 1, 2});
  FakeMulticast::install();
  const auto errors = create_on(comms, [](int rank, const Result<Sums>& made) {
    std::vector<float> data(10);
    fake::Stream stream{rank, {}, {}, false};
    if (made) {
      (void)(*made)(data.data(), data.data(), 10, Sum{}, reinterpret_cast<CUstream>(&stream));
    }
  });
  for (const Error& error : errors) CHECK(error.message() == Error{}.message());
  CHECK(right == ranks);
  comms.clear();
  fake_gpus.capabilities.clear();
  Kernels::launch = nullptr;
  Kernels::max_elements = nullptr;
}

TEST_CASE("without CCL_NVLS_ENABLE=1, no rank calls the driver for multicast") {
  auto comms = three_ranks();
  FakeMulticast& fake = FakeMulticast::install();
  for (const Error& error : create_on(comms)) {
    CHECK(error.code == Errc::not_supported);
    contains(error, "CCL_NVLS_ENABLE=1");
  }
  CHECK(fake.so_far().empty());
}

TEST_CASE("a call of the driver that fails on one rank fails on all, and they name it") {
  const Environment setting{"CCL_NVLS_ENABLE", "1"};
  const std::string call = GENERATE("create", "add", "bind");
  auto comms = three_ranks();
  FakeMulticast& fake = FakeMulticast::install();
  const int late = call == "create" ? 0 : 1;
  fake.failing = call;
  fake.device = late;
  const auto errors = create_on(comms);
  for (int r = 0; r < ranks; ++r) {
    INFO(call << ", rank " << r);
    CHECK(errors[std::size_t(r)].code == Errc::cuda);
    if (r != late) contains(errors[std::size_t(r)], "refused by rank " + std::to_string(late));
  }
  comms.clear();
  // All but the rank that failed had bound.
  CHECK(fake.times("unbind") == (call == "bind" ? ranks - 1 : 0));
}

TEST_CASE("a rank that does not bind is named by all") {
  const Environment setting{"CCL_NVLS_ENABLE", "1"};
  auto comms = three_ranks();
  // The driver has half of the creation limit. The bootstrap keeps its own.
  for (auto& comm : comms) detail::Access::state(*comm)->limits.init_timeout_s = 3;
  FakeMulticast& fake = FakeMulticast::install();
  fake.stuck = "bind";
  fake.device = 2;
  const auto errors = create_on(comms);
  for (int r = 0; r < ranks; ++r) {
    INFO("rank " << r);
    CHECK(errors[std::size_t(r)].code == Errc::timed_out);
    contains(errors[std::size_t(r)], r == 2 ? "(rank 2 on " : "refused by rank 2");
    contains(errors[std::size_t(r)], "within 1.5 s");
  }
  fake.stuck.clear();
}

TEST_CASE("abort ends the wait for the driver") {
  const Environment setting{"CCL_NVLS_ENABLE", "1"};
  auto comms = three_ranks();
  FakeMulticast& fake = FakeMulticast::install();
  fake.stuck = "bind";
  std::thread other{[&] {
    while (fake.times("bind") < ranks) std::this_thread::sleep_for(std::chrono::milliseconds{1});
    comms[1]->abort();
  }};
  const auto began = std::chrono::steady_clock::now();
  const auto errors = create_on(comms);
  other.join();
  CHECK(std::chrono::steady_clock::now() - began < std::chrono::seconds{10});
  for (const Error& error : errors) CHECK(error.code == Errc::aborted);
  fake.stuck.clear();
}
