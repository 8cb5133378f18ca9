#include "base/forks.hpp"

#include <atomic>

#include <pthread.h>

namespace ccl::detail {

namespace {
std::atomic<int> forks{0};
// Initialized when the library is loaded. A thread that registers later waits in it during a fork,
// and the child would wait for that thread.
[[maybe_unused]] const int watching = ::pthread_atfork(nullptr, nullptr, [] { ++forks; });
}  // namespace

int forks_before() {
  return forks.load(std::memory_order_relaxed);
}

}  // namespace ccl::detail
