// Signals of GPU ranks in the order of launches. The driver's GPUs are plain memory, and what runs
// on a GPU is noted by this test.
#include "nccl/device/signals.hpp"

#include <ccl/detail/lanes/host_memory.hpp>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "comm/state.hpp"
#include "nccl/device/signal_wait.hpp"
#include "support/error_matchers.hpp"
#include "support/gpu_ranks.hpp"

using namespace ccl;
using namespace ccl::test;
using namespace ccl::detail::nccl;

namespace {

int puts_made = 0, puts_with_word = 0, signals_sent = 0, waits = 0;
std::function<Result<void>()> signal_result = [] { return Result<void>{}; };
bool runs_waits = false;  // as kernels of the stream would
std::vector<std::thread> kernels;
std::atomic<int> waits_over{0};
std::atomic<int> loads{0};          // of the kernels
std::atomic<int> fails_to_load{0};  // the next times

struct TwoRanks {
  std::vector<Result<Communicator>> comms;
  std::shared_ptr<Signals> signals[2];
  CUstream stream = nullptr;  // of the first rank's GPU

  TwoRanks() {
    (void)gpus(2);
    auto cuda = fake::driver();
    cuda.stream_is_capturing = [](CUstream, CUstreamCaptureStatus* status) {
      *status = CU_STREAM_CAPTURE_STATUS_NONE;
      return CUDA_SUCCESS;
    };
    cuda.stream_get_id = [](CUstream of, unsigned long long* number) {
      *number = reinterpret_cast<std::uintptr_t>(of);
      return CUDA_SUCCESS;
    };
    detail::use_cuda_driver(cuda, 2);
    comms = create({0, 1});
    std::vector<std::thread> threads;
    for (std::size_t r = 0; r < 2; ++r) {
      REQUIRE(comms[r]);
      threads.emplace_back([this, r] {
        if (auto made = Signals::create(*comms[r], 1, 1)) signals[r] = *std::move(made);
      });
    }
    for (auto& thread : threads) thread.join();
    REQUIRE((signals[0] && signals[1]));
    (void)cuda.ctx_push_current(fake::context_of(0));
    REQUIRE(cuda.stream_create(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    CUcontext mine;
    (void)cuda.ctx_pop_current(&mine);
  }
  /// The stream's work ends after a while.
  void be_busy() const {
    reinterpret_cast<fake::Stream*>(stream)->busy_until =
        fake::Clock::now() + std::chrono::milliseconds{300};
  }
  /// Waits at most 10 s for the failure of a rank's communicator. Returns false if none came.
  bool has_failed(std::size_t rank) const {
    const auto until = fake::Clock::now() + std::chrono::seconds{10};
    while (comms[rank]->status() && fake::Clock::now() < until) std::this_thread::yield();
    return !comms[rank]->status();
  }
  bool busy() const { return detail::Access::state(*comms[0])->device.busy(); }
};

}  // namespace

namespace ccl::detail::nccl {
Result<void> load_signals_on_gpu() {
  ++loads;
  if (fails_to_load > 0 && fails_to_load-- > 0) return fail(Errc::cuda, "no kernel");
  return {};
}
Result<void> put_on_gpu(void*, const void*, std::size_t, std::uint64_t* counter,
                        std::uint64_t* ended, cudaStream_t) {
  ++puts_made;
  // In the memory of this rank, behind its counters of two sources: 0 between puts.
  if (*ended == 0 && ended != counter) ++puts_with_word;
  return {};
}
Result<void> signal_on_gpu(std::uint64_t*, cudaStream_t) {
  ++signals_sent;
  return signal_result();
}
Result<void> wait_on_gpu(const std::uint64_t* counter, std::uint64_t* taken, std::uint64_t times,
                         int peer, const AbortWatch& watch, cudaStream_t) {
  ++waits;
  if (!runs_waits) return {};
  kernels.emplace_back([=] {
    wait_for_signals<HostMemory>(counter, taken, times, peer, watch);
    ++waits_over;
  });
  return {};
}
}  // namespace ccl::detail::nccl

TEST_CASE("puts, signals and waits are launches, which the end of the communicator waits for") {
  TwoRanks ranks;
  Signals& mine = *ranks.signals[0];
  const SignalPlace to_peer{1, 0, 0};
  char from = 1, to = 0;
  const std::vector<std::function<Result<void>()>> calls{
      [&] { return mine.put(&to, &from, 1, to_peer, ranks.stream); },
      [&] { return mine.put(&to, &from, 0, to_peer, ranks.stream); },  // a signal alone
      [&] { return mine.send(to_peer, ranks.stream); },
      [&] { return mine.wait(to_peer, 1, ranks.stream); }};
  for (const auto& call : calls) {
    CHECK(!ranks.busy());
    ranks.be_busy();
    auto* const share = detail::Access::state(*ranks.comms[0])->device.order->share();
    REQUIRE(share != nullptr);
    share->held = 32;  // of a launch before
    REQUIRE(call());
    CHECK(share->held == 1);
    CHECK(ranks.busy());
    CHECK(detail::Access::state(*ranks.comms[0])->await_calls("the test"));
  }
  CHECK((puts_made == 1 && puts_with_word == 1 && signals_sent == 2 && waits == 1));
}

TEST_CASE("kernels are loaded before the first launch, or no rank has signals") {
  TwoRanks ranks;
  CHECK(loads >= 2);
  fails_to_load = 1;  // on one of the ranks
  std::atomic<int> made{0};
  std::vector<std::thread> threads;
  for (const auto& comm : ranks.comms) {
    threads.emplace_back([&] { made += Signals::create(*comm, 1, 1).has_value(); });
  }
  for (auto& thread : threads) thread.join();
  CHECK(made == 0);
}

TEST_CASE("the memory of signals outlives work on a stream") {
  TwoRanks ranks;
  ranks.be_busy();
  REQUIRE(ranks.signals[0]->wait({1, 0, 0}, 1, ranks.stream));
  const std::size_t before = fake::gpus().regions.size();
  for (auto& one : ranks.signals) one.reset();
  // The memory of the second rank may go; the first one's, and what it maps, is in use.
  CHECK(ranks.busy());
  CHECK(fake::gpus().regions.size() >= before - 1);
  while (ranks.busy()) std::this_thread::yield();  // or this test's time is over
}

TEST_CASE("a stream's wait for signals of a rank that has departed fails") {
  TwoRanks ranks;
  auto& state = *detail::Access::state(*ranks.comms[0]);
  detail::Watched& watched = state.device.gpu->watched();
  runs_waits = true;
  waits_over = 0;
  REQUIRE(ranks.signals[0]->wait({1, 0, 0}, 2, ranks.stream));
  while (detail::HostMemory::load_acquire(&watched.program_waits.peer) == 0) {
    std::this_thread::yield();
  }
  CHECK(watched.program_waits.peer == 2);  // rank + 1
  CHECK(waits_over == 0);
  REQUIRE(state.status.set_departed(1));
  CHECK(ranks.has_failed(0));
  const auto well = ranks.comms[0]->status();
  REQUIRE(!well);
  INFO(well.error().message());
  CHECK((well.error().code == Errc::peer_lost && well.error().peer == 1));
  for (auto& kernel : kernels) kernel.join();  // the stop of the communicator ends them
  kernels.clear();
  runs_waits = false;
  CHECK(waits_over == 1);
}

TEST_CASE("a stream's wait for signals ends when they have come, and takes them") {
  Word counter = 3, taken = 1, stop = 0;
  detail::LaneFailure failure;
  detail::WaitRecord record;
  const detail::AbortWatch watch{.stop = &stop, .lane_failure = &failure, .waits = &record};
  wait_for_signals<detail::HostMemory>(&counter, &taken, 2, 1, watch);
  CHECK(taken == 3);
  std::thread later{[&] {
    while (detail::HostMemory::load_acquire(&record.peer) == 0) std::this_thread::yield();
    detail::HostMemory::fetch_add(&counter, 1);
  }};
  wait_for_signals<detail::HostMemory>(&counter, &taken, 1, 1, watch);
  later.join();
  CHECK((taken == 4 && failure.peer == 0));
  CHECK(record.peer == 0);  // nobody waits any more
  const detail::AbortWatch limited{
      .stop = &stop, .lane_failure = &failure, .deadline_ns = 20'000'000, .waits = &record};
  wait_for_signals<detail::HostMemory>(&counter, &taken, 1, 1, limited);
  CHECK((failure.peer == 2 && failure.why == detail::LaneFailure::late));
}

TEST_CASE("after an abort nothing is launched") {
  TwoRanks ranks;
  const int before = waits;
  ranks.comms[0]->abort();
  CHECK(!ranks.signals[0]->wait({1, 0, 0}, 1, ranks.stream));
  CHECK(waits == before);
}

TEST_CASE("a signal that cannot be launched fails the communicator on all ranks") {
  const std::vector<std::function<Result<void>()>> failures{
      []() -> Result<void> { return fail(Errc::cuda, "no launch"); },
      []() -> Result<void> { throw std::bad_alloc{}; }};
  for (const auto& failure : failures) {
    TwoRanks ranks;
    const auto context = [] {
      CUcontext current = nullptr;
      (void)(*detail::cuda_driver())->ctx_get_current(&current);
      return current;
    };
    const CUcontext before = context();
    signal_result = failure;
    Result<void> sent;
    CHECK_NOTHROW(sent = ranks.signals[0]->send({1, 0, 0}, ranks.stream));
    signal_result = [] { return Result<void>{}; };
    CHECK(!sent);
    CHECK(context() == before);  // the turn has ended
    // The peer may wait for the signal, without a limit.
    CHECK((ranks.has_failed(0) && ranks.has_failed(1)));
  }
}
