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

  void set(State to) {
    state.store(to);
    ::syscall(SYS_futex, &state, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
  }
  /// Waits until the state is another, or for `limit`.
  void await_other(std::uint32_t than, Word yields_ns, const timespec* limit) {
    for (const Word end = HostMemory::now_ns() + yields_ns; HostMemory::now_ns() < end;) {
      if (state.load() != than) return;
      ::sched_yield();
    }
    ::syscall(SYS_futex, &state, FUTEX_WAIT_PRIVATE, than, limit, nullptr, 0);
  }
  void serve() {
    this_thread_facts = {true, &lanes};
    for (;;) {
      const std::uint32_t now = state.load();
      if (now == ends) return;
      if (now != runs) {
        await_other(now, runner_yields_ns, nullptr);
        continue;
      }
      try {
        body(of);
      } catch (...) {
        thrown = std::current_exception();
      }
      lanes.running.store(0);
      set(done);
    }
  }

  std::atomic<std::uint32_t> state{idle};
  void (*body)(void* of) = nullptr;
  void* of = nullptr;
  std::exception_ptr thrown;
  LaneScope lanes;
  std::thread thread;
};

LaneRunners::LaneRunners() = default;

LaneRunners::~LaneRunners() {
  for (const auto& one : idle_) {
    one->set(Runner::ends);
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
  one->set(Runner::runs);
  while (one->state.load() == Runner::runs) {
    one->await_other(Runner::runs, caller_yields_ns, &between_looks);
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
