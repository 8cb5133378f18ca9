#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include <pthread.h>

namespace ccl::detail {

/// Mutex for one thread that locks it often, and others that do so rarely. A thread that has locked
/// it some 64 times in a row, while no other did, becomes its owner: it then locks and unlocks
/// without an atomic addition, which would wait for all earlier stores to reach the other cores.
/// Another thread runs a barrier on all cores of the process first (`membarrier`, some
/// microseconds). Without that system call, and once other threads lock it often, it is a
/// `std::mutex` for good.
class BiasedMutex {
 public:
  /// Registers this process for that system call, once. Until then no mutex has an owner. May take
  /// some 15 ms in a process of several threads.
  static void prepare() noexcept;

  [[gnu::always_inline]] void lock() {
    if (!lock_as_owner()) lock_slowly();
  }
  [[gnu::always_inline]] bool try_lock() { return lock_as_owner() || try_lock_slowly(); }
  [[gnu::always_inline]] void unlock() {
    if (owner_.load(std::memory_order_relaxed) == self() && held_.load(std::memory_order_relaxed)) {
      held_.store(false, std::memory_order_release);
    } else {
      unlock_slowly();
    }
  }

 private:
  /// Names the calling thread.
  static std::uintptr_t self() {
#if defined(__x86_64__)
    std::uintptr_t thread = 0;
    asm("mov %%fs:0, %0" : "=r"(thread));  // as `pthread_self`, without a call
    return thread;
#else
    return std::uintptr_t(::pthread_self());
#endif
  }

  /// The light half of the fence: `lock_slowly` has the other one.
  [[gnu::always_inline]] bool lock_as_owner() {
    if (owner_.load(std::memory_order_relaxed) != self()) return false;
    held_.store(true, std::memory_order_relaxed);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    // An owner that is none any more sees that, too, because it was one before `wanted_` ended.
    if (!wanted_.load(std::memory_order_acquire) &&
        owner_.load(std::memory_order_relaxed) == self()) {
      return true;
    }
    held_.store(false, std::memory_order_release);
    return false;
  }
  void lock_slowly();
  bool try_lock_slowly();
  void unlock_slowly();
  bool keep_owner_out(bool waits);
  void count_turn();

  std::atomic<std::uintptr_t> owner_{0};  // 0: none. It changes twice: to a thread, and back
  std::atomic<bool> held_{false};         // by the owner
  std::atomic<bool> wanted_{false};       // by another thread, which holds `mutex_`
  std::mutex mutex_;                      // held by all others; guards the rest
  std::uintptr_t last_ = 0;               // latest thread, while there was no owner yet
  int in_a_row_ = 0;                      // its turns; negative: there is no owner any more
  int others_ = 0;                        // turns of other threads since, close together
  std::uint64_t other_ns_ = 0;            // the latest of these, by the steady clock
};

}  // namespace ccl::detail
