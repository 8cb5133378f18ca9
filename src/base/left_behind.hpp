#pragma once

#include <atomic>

#include <unistd.h>

namespace ccl::detail {

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
[[noreturn]] inline void stay_behind() noexcept {
  for (;;) ::pause();
}

}  // namespace ccl::detail
