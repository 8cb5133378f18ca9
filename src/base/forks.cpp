#include "base/forks.hpp"

#include <atomic>

#include <pthread.h>

namespace ccl::detail {

int forks_before() {
  static std::atomic<int> forks{0};
  static const int watching = ::pthread_atfork(nullptr, nullptr, [] { ++forks; });
  (void)watching;
  return forks.load(std::memory_order_relaxed);
}

}  // namespace ccl::detail
