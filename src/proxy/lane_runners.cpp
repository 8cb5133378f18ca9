#include "proxy/lane_runners.hpp"

#include <ccl/detail/lanes/host_memory.hpp>

#include <atomic>
#include <cstdint>
#include <exception>
#include <thread>
#include <utility>

#include "base/thread.hpp"
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

namespace ccl::detail {
namespace {
constexpr timespec between_looks{0, 20'000'000};  // for lanes that are left behind
// Time in which a thread yields its core before it blocks. A blocked thread takes some 20 us to run
// again, and calls often follow each other.
constexpr Word runner_yields_ns = 50'000, caller_yields_ns = 5'000;
}  // namespace

struct LaneRunners::Runner {
  enum State : std::uint32_t { idle, runs, done, ends };

  /// Sets the state, and wakes the other thread if it sleeps.
  void set(State to, const std::atomic<bool>& sleeps) {
    state.store(to);
    if (!sleeps.load()) return;  // the other order than in `await_other`
    ::syscall(SYS_futex, &state, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
  }
  /// Waits until the state is another, or for `limit`. `sleeps` is that of the calling thread.
  void await_other(std::uint32_t than, std::atomic<bool>& sleeps, Word yields_ns,
                   const timespec* limit) {
    for (const Word end = HostMemory::now_ns() + yields_ns; HostMemory::now_ns() < end;) {
      if (state.load() != than) return;
      ::sched_yield();
    }
    sleeps.store(true);
    ::syscall(SYS_futex, &state, FUTEX_WAIT_PRIVATE, than, limit, nullptr, 0);
    sleeps.store(false);
  }
  void serve() {
    this_thread_facts = {true, &lanes};
    for (;;) {
      const std::uint32_t now = state.load();
      if (now == ends) return;
      if (now != runs) {
        await_other(now, runner_sleeps, runner_yields_ns, nullptr);
        continue;
      }
      try {
        body(of);
      } catch (...) {
        thrown = std::current_exception();
      }
      lanes.running.store(0);
      set(done, caller_sleeps);
    }
  }

  std::atomic<std::uint32_t> state{idle};
  std::atomic<bool> caller_sleeps{false}, runner_sleeps{false};
  void (*body)(void* of) = nullptr;
  void* of = nullptr;
  std::exception_ptr thrown;
  LaneScope lanes;
  std::thread thread;
};

LaneRunners::LaneRunners() = default;

LaneRunners::~LaneRunners() {
  for (const auto& one : idle_) {
    one->set(Runner::ends, one->runner_sleeps);
    one->thread.join();
  }
}

std::shared_ptr<LaneRunners::Runner> LaneRunners::take() {
  {
    const std::lock_guard lock{mutex_};
    if (!idle_.empty()) {
      auto one = std::move(idle_.back());
      idle_.pop_back();
      return one;
    }
    idle_.reserve(idle_.capacity() + 1);  // for its return
  }
  auto made = std::make_shared<Runner>();
  auto thread = own_thread("lanes over a network plug-in", [made] { made->serve(); });
  if (!thread) return nullptr;
  made->thread = *std::move(thread);
  return made;
}

bool LaneRunners::run(void (*body)(void* of), void* of) {
  const std::shared_ptr<Runner> one = take();
  if (one == nullptr) return false;
  one->body = body;
  one->of = of;
  one->lanes.running.store(1);
  one->set(Runner::runs, one->runner_sleeps);
  while (one->state.load() == Runner::runs) {
    one->await_other(Runner::runs, one->caller_sleeps, caller_yields_ns, &between_looks);
    if (one->state.load() == Runner::runs && one->lanes.only_left()) {
      one->thread.detach();
      return true;
    }
  }
  const std::exception_ptr thrown = std::exchange(one->thrown, nullptr);
  {
    const std::lock_guard lock{mutex_};
    idle_.push_back(one);
  }
  if (thrown != nullptr) std::rethrow_exception(thrown);
  return true;
}

}  // namespace ccl::detail
