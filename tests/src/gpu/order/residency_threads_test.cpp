// Threads that launch on one GPU at once, wait for each other, or are stuck in the driver.
#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "gpu/order/order.hpp"
#include "gpu/order/residency.hpp"
#include "support/catch.hpp"
#include "support/error_matchers.hpp"
#include "support/gpu_comm.hpp"
#include "support/gpu_scheduler.hpp"

using namespace ccl;
using namespace ccl::test;
using detail::GpuOrder;
using Comm = GpuComm;

namespace {
constexpr int multiprocessors = 132;
}  // namespace

TEST_CASE("a launch waits for another thread's launch that it must follow") {
  GpuScheduler gpus{1, multiprocessors};
  Comm first{gpus, 0, 1, 128, true}, second{gpus, 1, 1, 128, true};
  const CUstream one = gpus.stream(0), other = gpus.stream(0);
  REQUIRE(first.order(0).before(one, nullptr));
  std::atomic<bool> done{false};
  std::thread thread{[&] {
    second.call(0, other);
    done = true;
  }};
  std::this_thread::sleep_for(std::chrono::milliseconds{50});
  CHECK_FALSE(done);
  REQUIRE(first.order(0).after(one));
  thread.join();
  const auto& work = GpuScheduler::of(other).work;
  REQUIRE(work.size() == 3);  // a wait, the launch and its record
  CHECK(work[0]->kind == ScheduledWork::wait);
  CHECK(work[0]->event == GpuScheduler::of(one).work.back()->event);
  CHECK(work[0]->number == 1);
}

TEST_CASE("a launch waits for another thread's launch until its limit, or its own failure") {
  GpuScheduler gpus{1, multiprocessors};
  Comm first{gpus, 0, 1, 128, true};
  REQUIRE(first.order(0).before(gpus.stream(0), nullptr));  // and does not return for long
  for (const bool aborts : {false, true}) {
    detail::Status status;
    GpuOrder second{*detail::Gpu::open(0)};
    REQUIRE(second.join({128, 1, 0, true, &status, aborts ? 0 : 0.8}));
    auto begun =
        std::async(std::launch::async, [&] { return second.before(gpus.stream(0), nullptr); });
    if (aborts) CHECK(begun.wait_for(std::chrono::milliseconds{50}) == std::future_status::timeout);
    if (aborts) status.set({Errc::aborted, "the user called abort"});
    const bool ends = begun.wait_for(std::chrono::seconds{10}) == std::future_status::ready;
    CHECK(ends);
    if (!ends) first.order(0).give_up();
    const auto result = begun.get();
    REQUIRE_FALSE(result);
    CHECK(result.error().code == (aborts ? Errc::aborted : Errc::timed_out));
    CHECK(mentions(result.error().what, aborts ? "the user" : "on CUDA device 0"));
  }
  first.order(0).give_up();
}

namespace {
std::atomic<bool> driver_blocks{false}, is_blocked{false};
}  // namespace

TEST_CASE("a launch that is blocked in the driver holds no lock of the GPU's other launches") {
  GpuScheduler gpus{1, multiprocessors};
  Comm first{gpus, 0, 1, 128, true}, second{gpus, 1, 1, 128, true};
  first.call(0, gpus.stream(0));
  driver_blocks = true;
  GpuScheduler::before_waits() = [] {
    is_blocked = true;
    while (driver_blocks) std::this_thread::yield();
  };
  std::thread blocked{[&] { second.call(0, gpus.stream(0)); }};
  while (!is_blocked) std::this_thread::yield();
  auto counted = std::async(std::launch::async, [&] { return first.order(0).shortage(); });
  CHECK(counted.wait_for(std::chrono::seconds{10}) == std::future_status::ready);
  driver_blocks = false;
  blocked.join();
  GpuScheduler::before_waits() = nullptr;
}

TEST_CASE("threads that launch at once get one order") {
  GpuScheduler gpus{1, multiprocessors};
  std::vector<std::unique_ptr<Comm>> comms;
  std::vector<CUstream> streams;
  for (int c = 0; c < 3; ++c) {
    comms.push_back(std::make_unique<Comm>(gpus, c, 1, 60 + 20 * c, true));
    streams.push_back(gpus.stream(0));
  }
  std::vector<std::thread> threads;
  for (std::size_t c = 0; c < comms.size(); ++c) {
    threads.emplace_back([&, c] {
      for (int n = 0; n < 300; ++n) comms[c]->call(0, streams[c]);
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(gpus.run(1));
}

TEST_CASE("a shortage may be asked for while communicators take their places") {
  GpuScheduler gpus{1, multiprocessors};
  std::vector<std::unique_ptr<GpuOrder>> orders;
  for (int n = 0; n < 20; ++n) {
    orders.push_back(std::make_unique<GpuOrder>(*detail::Gpu::open(0)));
  }
  std::atomic<bool> over{false};
  std::thread asks{[&] {
    while (!over) {
      for (const auto& order : orders) (void)order->shortage();
    }
  }};
  for (std::size_t n = 0; n < orders.size(); ++n) {
    CHECK(orders[n]->join({32, 1, 0, false}));
    if (n % 2 != 0) orders[n]->follow(*orders[n - 1]);
  }
  over = true;
  asks.join();
}

TEST_CASE("a shortage is found without a call of CUDA, and while a launch is stuck in one") {
  static std::atomic<bool> stuck{false}, called{false};
  GpuScheduler gpus{1, multiprocessors};
  Comm first{gpus, 0, 1, 128, false}, second{gpus, 1, 1, 64, true}, third{gpus, 2, 1, 64, true};
  for (Comm* comm : {&first, &second}) comm->call(0, gpus.stream(0));
  first.waits(0, true);
  detail::CudaDriver cuda = **detail::cuda_driver();
  static const auto usual_wait = cuda.stream_wait_event;
  cuda.stream_wait_event = [](CUstream stream, CUevent event, unsigned flags) {
    stuck = true;  // a queue that is full
    for (int tries = 0; stuck && tries < 20'000; ++tries) {
      std::this_thread::sleep_for(std::chrono::milliseconds{1});
    }
    stuck = false;
    return usual_wait(stream, event, flags);
  };
  cuda.event_query = [](CUevent) {
    called = true;
    return CUDA_ERROR_NOT_READY;
  };
  detail::use_cuda_driver(cuda, 1);
  std::thread launch{[&] { third.call(0, gpus.stream(0)); }};
  while (!stuck) std::this_thread::sleep_for(std::chrono::milliseconds{1});
  called = false;
  CHECK(second.order(0).shortage());
  CHECK(stuck);  // nobody has waited for that launch
  CHECK_FALSE(called);
  stuck = false;
  launch.join();
}
