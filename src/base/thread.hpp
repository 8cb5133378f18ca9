#pragma once

#include <ccl/detail/base/exceptions.hpp>
#include <ccl/types/result.hpp>

#include <atomic>
#include <string_view>
#include <thread>
#include <utility>

#include <signal.h>
#include <unistd.h>

namespace ccl::detail {

/// Keeps the shared library that contains ccl loaded after `dlclose`, because threads run its code
/// until they end. The first call takes the loader's lock: call it without a lock that a library's
/// constructor may need.
void stay_loaded();

/// CPU lanes of one launch, on threads of ccl that can be left behind.
struct LaneScope {
  std::atomic<int> running{0};  // threads that may still use what the launch has lent them
  std::atomic<int> left{0};     // threads that are left behind
  /// True if nothing runs any more but what is left behind.
  bool only_left() const { return left.load() > 0 && running.load() == 0; }
  void leave_one() {
    left.fetch_add(1);  // before the other: `only_left` has the opposite order
    running.fetch_sub(1);
  }
};

/// Facts about a thread of ccl that may call other libraries.
struct ThreadFacts {
  bool can_be_left = false;    // nobody waits for it without an end
  LaneScope* lanes = nullptr;  // that it runs; null: none
};
inline constinit thread_local ThreadFacts this_thread_facts;

/// Keeps the calling thread, which was left behind, from all that others own now. It sleeps until
/// the process ends.
[[noreturn]] inline void park_thread() noexcept {
  for (;;) ::pause();
}

/// Blocks all signals of the calling thread, and so of threads that it starts.
class NoSignals {
 public:
  NoSignals();
  ~NoSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  NoSignals(const NoSignals&) = delete;
  NoSignals& operator=(const NoSignals&) = delete;

 private:
  sigset_t before_;
};

/// Returns the error for a thread that could not start because of `why`. It names the limits.
Error no_thread(std::string_view what, Error why) noexcept;

/// Starts a thread of ccl that calls `body(args...)`, with all signals blocked, since signals
/// belong to the program's threads. `what` names its purpose in the error if the process or its
/// user may have no further thread. Throws nothing, also if a copy of `body` or of an argument
/// does.
template <class Body, class... Args>
Result<std::thread> own_thread(std::string_view what, Body&& body, Args&&... args) noexcept {
  stay_loaded();
  const NoSignals in_thread;
  auto thread = without_exceptions([&]() -> Result<std::thread> {
    return std::thread{std::forward<Body>(body), std::forward<Args>(args)...};
  });
  if (!thread) return fail(no_thread(what, std::move(thread).error()));
  return thread;
}

}  // namespace ccl::detail
