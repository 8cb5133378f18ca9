// Proxy work of threads that wait inside a collective.
#include <ccl/detail/runtime/proxy_engine.hpp>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <utility>

#include "base/exceptions.hpp"
#include <poll.h>

namespace ccl::detail {
namespace {
// Time for which a helper polls before it blocks. On hardware, polling gets data sooner. If the
// kernel does the work of the network and cores are few, a poll takes a core from that work.
//
// Sockets are slower than a turn of all ranks on their cores, which is the usual cause of late
// waiters.
constexpr double idle_after_us = 50, idle_on_sockets_after_us = 400;
constexpr double max_idle_us = 1000, min_idle_us = 50, max_polled_us = 250;

/// A thread's wait: successive calls of `help` that moved no step, with little time between them.
struct Wait {
  std::chrono::steady_clock::time_point since{}, last{};
};
thread_local Wait wait;
constexpr auto same_wait = std::chrono::microseconds{100};

// Limits of calls without a pause. A pause counts as `max_call_ns` at most in their average length.
// Steps that these calls post are deferred for the length of some calls at most. The thread checks
// as often.
constexpr Word quick_call_ns = 30'000, max_call_ns = 500'000, calls_on_average = 8;
constexpr Word max_deferral_ns = 60'000;
}  // namespace

bool ProxyEngine::help(bool looks_elsewhere) noexcept {
  if (task_count_.load(std::memory_order_relaxed) == 0) return false;
  try {
    return help_once(looks_elsewhere);
  } catch (...) {
    fail_thrown();
    return false;
  }
}

bool ProxyEngine::help_once(bool looks_elsewhere) {
  RoundLock mine = round_lock();
  if (!mine) return false;
  const bool moved = round();
  if (skipped_ && wants_calls()) {  // the engine's thread makes them
    wake();
    return moved;
  }
  helped_.store(helped_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  const auto now = std::chrono::steady_clock::now();
  if (moved || now - wait.last > same_wait) wait.since = now;
  wait.last = now;
  const double waited_us = std::chrono::duration<double, std::micro>(now - wait.since).count();
  const auto on_sockets = [this] {
    return std::all_of(tasks_.begin(), tasks_.end(),
                       [](const auto& t) { return t->readiness.fd >= 0; });
  };
  if (looks_elsewhere || skipped_ || waited_us < idle_after_us ||
      (waited_us < idle_on_sockets_after_us && on_sockets())) {
    mine.reset();
  } else {
    idle_wait(std::move(mine), waited_us);
    wait.last = std::chrono::steady_clock::now();
  }
  return moved;
}

bool ProxyEngine::wants_calls() const {
  return std::any_of(tasks_.begin(), tasks_.end(), [](const auto& task) {
    if (!task->calls_library) return false;
    const ProxyInterest interest = task->interest();
    return interest.pending || interest.polled;
  });
}

void ProxyEngine::idle_wait(RoundLock lock, double waited_us) {
  std::vector<pollfd> watched;
  if (!completes([&] { watched.reserve(tasks_.size()); })) return;  // it polls on
  bool stay = true;
  double limit_us = std::clamp(waited_us / 4, min_idle_us, max_idle_us);
  for (const auto& task : tasks_) {
    if (task->arm()) stay = false;
    const ProxyInterest interest = task->interest();
    if (interest.pending) stay = false;
    if (interest.polled) limit_us = std::clamp(limit_us / 2, min_idle_us, max_polled_us);
    if (interest.fd >= 0 && interest.events != 0) {
      watched.push_back({interest.fd, interest.events, 0});
    }
  }
  if (stay) idle_waiters_.fetch_add(1, std::memory_order_relaxed);
  lock.reset();
  if (!stay) return;
  const timespec limit{0, long(limit_us * 1000)};
  ::ppoll(watched.data(), nfds_t(watched.size()), &limit, nullptr);
  idle_waiters_.fetch_sub(1, std::memory_order_relaxed);
}

ProxyEngine::Rest ProxyEngine::rest() const {
  Rest rest;
  for (const auto& task : tasks_) {
    const ProxyInterest interest = task->interest();
    task->left_over =
        (interest.pending && !interest.for_helpers) || (interest.events & POLLOUT) != 0;
    rest.left_over = rest.left_over || task->left_over;
    rest.gathers = rest.gathers && (interest.gathers || !task->left_over);
    // What is for helpers needs the thread only if that may sleep without a timeout. While it is
    // awake, it has not looked at this yet.
    const bool can_wait =
        interest.for_helpers && (!asleep_.load() || polled_.load(std::memory_order_relaxed));
    rest.polled = rest.polled || (interest.polled && !can_wait);
  }
  return rest;
}

Word ProxyEngine::drain() noexcept {
  Word left = 0;
  try {
    if (task_count_.load(std::memory_order_relaxed) > 0) {
      const RoundLock mine = round_lock();
      if (mine) round();
      if (mine && skipped_ && wants_calls()) wake();  // the engine's thread makes them
      if (!mine) left = 1;
      for (std::size_t n = 0; mine && n < tasks_.size(); ++n) left += tasks_[n]->undelivered();
    }
  } catch (...) {
    fail_thrown();
  }
  const std::unique_lock lock{start_mutex_, std::try_to_lock};
  if (!lock) return left + 1;
  for (const auto& engine : further_) left += engine->drain();
  return left;
}

bool ProxyEngine::defers(const Rest& rest) {
  const Word now = HostMemory::now_ns();
  const Word took = std::min(now - last_call_ns_, max_call_ns);
  call_ns_ = call_ns_ - call_ns_ / calls_on_average + took / calls_on_average;
  last_call_ns_ = now;
  if (took > quick_call_ns || call_ns_ > quick_call_ns) return false;
  if (!rest.left_over || !rest.gathers || rest.polled) return false;
  const Word since = deferred_ns_.load(std::memory_order_relaxed);
  if (since == 0) deferred_ns_.store(now);
  return since == 0 || now - since < max_deferral_ns;
}

ProxyHelper::ProxyHelper(ProxyEngine& engine, bool looks_elsewhere)
    : engine_{engine}, before_{detail::idle_hook} {
  detail::idle_hook = {
      looks_elsewhere ? [](void* context) { return static_cast<ProxyEngine*>(context)->help(true); }
                      : [](void* context) { return static_cast<ProxyEngine*>(context)->help(); },
      &engine};
}

ProxyHelper::~ProxyHelper() {
  detail::idle_hook = before_;
  if (engine_.task_count_.load(std::memory_order_relaxed) == 0) return;
  for (int attempt = 0; attempt < 4; ++attempt) {
    ProxyEngine::RoundLock mine = engine_.round_lock();
    if (!mine) continue;
    // A full round costs a system call for each socket that it reads.
    ProxyEngine::Rest rest = engine_.rest();
    const bool deferred = engine_.defers(rest);
    if (rest.left_over && !deferred) {
      engine_.round(true);
      rest = engine_.rest();
    }
    engine_.helped_.store(engine_.helped_.load(std::memory_order_relaxed) + 1,
                          std::memory_order_relaxed);
    mine.reset();
    // The thread must poll tasks of peers that cannot call. It may have gone to sleep without a
    // timeout before these steps were posted.
    if (deferred ? !engine_.guarded_.exchange(true) : rest.left_over || rest.polled) engine_.wake();
    return;
  }
  engine_.wake();  // another thread's round may have passed these steps
}

}  // namespace ccl::detail
