#include "connect/registry/registry_board.hpp"

#include <climits>

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

namespace ccl::detail {
namespace {
// Without FUTEX_PRIVATE_FLAG, because processes share the memory.
long futex(std::atomic<unsigned>* at, int what, unsigned value, const timespec* limit) {
  static_assert(sizeof *at == sizeof(unsigned) && std::atomic<unsigned>::is_always_lock_free);
  return ::syscall(SYS_futex, at, what, value, limit, nullptr, 0);
}
}  // namespace

void RegistryBoard::ring() {
  doorbell_.fetch_add(1, std::memory_order_release);
  (void)futex(&doorbell_, FUTEX_WAKE, INT_MAX, nullptr);
}

void RegistryBoard::await_ring(unsigned notified, std::chrono::milliseconds limit) {
  timespec time{};
  time.tv_sec = limit.count() / 1000;
  time.tv_nsec = limit.count() % 1000 * 1'000'000;
  (void)futex(&doorbell_, FUTEX_WAIT, notified, &time);
}

}  // namespace ccl::detail
