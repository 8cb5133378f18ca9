#include <ccl/detail/base/biased_mutex.hpp>
#include <ccl/detail/base/cpu.hpp>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace ccl::detail {
namespace {

constexpr int owner_after = 64;  // turns in a row
// Turns of other threads, at most so long apart, after which there is no owner any more. A watchdog
// looks at times only.
constexpr int max_others = 64;
constexpr std::uint64_t apart_ns = 10'000'000;
constexpr int polls_before_sleep = 256;

long membarrier(int command) {
  return ::syscall(SYS_membarrier, command, 0, 0);
}
/// True if this process may run barriers on all of its cores.
constinit std::atomic<bool> registered{false};

/// Orders what this thread has stored before what all threads of the process load from now on. A
/// registered process is refused only while the kernel lacks memory, and a fork of one perhaps
/// until it registers.
void heavy_fence() {
  while (membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) != 0) {
    if (errno == EPERM) (void)membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED);
    std::this_thread::yield();
  }
}

}  // namespace

void BiasedMutex::prepare() noexcept {
  static std::atomic<bool> tried{false};
  if (tried.exchange(true)) return;
  registered = membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0;
}

/// Counts a turn of a thread that holds `mutex_`. It may become the owner, or the owner none.
void BiasedMutex::count_turn() {
  if (in_a_row_ < 0) return;
  const std::uintptr_t owner = owner_.load(std::memory_order_relaxed);
  if (owner == self()) return;
  if (owner != 0) {
    const std::uint64_t now = steady_ns();
    others_ = now - other_ns_ < apart_ns ? others_ + 1 : 0;
    other_ns_ = now;
    if (others_ < max_others) return;
    owner_.store(0, std::memory_order_relaxed);  // before `wanted_` ends
    in_a_row_ = -1;
    return;
  }
  in_a_row_ = last_ == self() ? std::min(in_a_row_ + 1, owner_after) : 1;
  last_ = self();
  if (in_a_row_ == owner_after && registered) owner_.store(self(), std::memory_order_relaxed);
}

/// Keeps the owner from locking, for a thread that holds `mutex_`. Returns false if it holds the
/// lock and the thread does not wait for it.
bool BiasedMutex::keep_owner_out(bool waits) {
  const std::uintptr_t owner = owner_.load(std::memory_order_relaxed);
  if (owner == 0 || owner == self()) return true;
  wanted_.store(true, std::memory_order_relaxed);
  heavy_fence();
  auto pause = std::chrono::microseconds{20};
  for (int polls = 0; held_.load(std::memory_order_acquire); ++polls) {
    if (!waits) {
      wanted_.store(false, std::memory_order_release);
      return false;
    }
    if (polls < polls_before_sleep) {
      cpu_relax();
      continue;
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, std::chrono::microseconds{1000});
  }
  return true;
}

void BiasedMutex::lock_slowly() {
  mutex_.lock();
  (void)keep_owner_out(true);
  count_turn();
}

bool BiasedMutex::try_lock_slowly() {
  if (!mutex_.try_lock()) return false;
  if (!keep_owner_out(false)) {
    mutex_.unlock();
    return false;
  }
  count_turn();
  return true;
}

void BiasedMutex::unlock_slowly() {
  if (wanted_.load(std::memory_order_relaxed)) wanted_.store(false, std::memory_order_release);
  mutex_.unlock();
}

}  // namespace ccl::detail
