#pragma once

#include <ccl/types/word.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>

#include "base/thread.hpp"

namespace ccl::detail {

class ProxyEngine;

/// Record of the call to another library that the tasks of an engine make now. Such a call may
/// never return. A call costs its thread some stores and one exchange, and waits for nothing.
///
/// Whoever sees a call for too long may `take` it. The call's thread is then left behind: should
/// the call return, the thread uses nothing more and sleeps until the process ends.
class LibraryCalls {
 public:
  explicit LibraryCalls(ProxyEngine& of) : engine{&of} {}

  /// Runs a call of at most `limit_s` seconds; 0: no limit. `function` names it and is never
  /// destroyed. In a turn of a task, on a thread that can be left behind.
  template <class Call>
  auto run(const char* function, double limit_s, Call&& call) {
    const Running mark{*this, function, limit_s};
    return call();
  }
  /// True if this thread gives tasks turns in which they may call.
  static bool may_call() { return this_thread_facts.can_be_left; }

  /// Ends the calls of all engines of this process: it exits, and destroys the static objects of
  /// the libraries after this. Does not wait for calls that run. Tests take it back. Any thread.
  static void set_ended(bool ended) noexcept { ended_.store(ended); }
  static bool have_ended() noexcept { return ended_.load(std::memory_order_acquire); }

  /// Wakes the engine's thread, if the engine lives. Any thread.
  void wake();

  /// A call that runs.
  struct Seen {
    Word number = 0;  // 0: none runs
    const char* function = nullptr;
    double limit_s = 0;
    double seconds = 0;  // for which looks have seen it
  };
  /// Returns the number of the call that runs. Any thread.
  Word number() const { return running_.load(std::memory_order_acquire); }

  // The holder of `mutex` uses what follows.
  std::mutex mutex;
  ProxyEngine* engine;  // null: it has ended
  /// Returns the call that runs. Only time between looks counts, because the process may have been
  /// stopped for long.
  Seen look() {
    Seen seen{number(), function_.load(std::memory_order_relaxed),
              limit_s_.load(std::memory_order_relaxed)};
    const auto now = std::chrono::steady_clock::now();
    const auto since = std::min<Duration>(now - last_look_, longest_step);
    last_look_ = now;
    if (seen.number == 0 || seen.number != number()) return {};
    seen_for_ = seen.number == last_seen_ ? seen_for_ + since : Duration{0};
    last_seen_ = seen.number;
    seen.seconds = std::chrono::duration<double>(seen_for_).count();
    return seen;
  }
  /// Leaves the thread of a call behind, unless the call has returned. The caller then has the
  /// engine's round in its place. Returns the lanes that it runs, or null.
  bool take(Word number, LaneScope*& lanes) {
    lanes = lanes_.load(std::memory_order_relaxed);
    return running_.compare_exchange_strong(number, 0, std::memory_order_acq_rel);
  }

 private:
  using Duration = std::chrono::steady_clock::duration;
  static constexpr auto longest_step = std::chrono::milliseconds{500};
  struct Running {
    Running(LibraryCalls& calls, const char* function, double limit_s)
        : of{calls}, number{++calls.count_} {
      of.function_.store(function, std::memory_order_relaxed);
      of.limit_s_.store(limit_s, std::memory_order_relaxed);
      of.lanes_.store(this_thread_facts.lanes, std::memory_order_relaxed);
      of.running_.store(number, std::memory_order_release);
    }
    ~Running() {
      Word mine = number;
      if (!of.running_.compare_exchange_strong(mine, 0, std::memory_order_acq_rel)) park_thread();
    }
    Running(const Running&) = delete;
    Running& operator=(const Running&) = delete;
    LibraryCalls& of;
    const Word number;
  };

  static inline std::atomic<bool> ended_{false};
  alignas(64) std::atomic<Word> running_{0};
  std::atomic<const char*> function_{nullptr};
  std::atomic<double> limit_s_{0};
  std::atomic<LaneScope*> lanes_{nullptr};
  Word count_ = 0;  // of the thread that has the round

  Word last_seen_ = 0;
  Duration seen_for_{0};
  std::chrono::steady_clock::time_point last_look_{};
};

}  // namespace ccl::detail
