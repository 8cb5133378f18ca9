#include "base/fork_mutex.hpp"

#include <chrono>
#include <thread>
#include <type_traits>
#include <utility>

#include <pthread.h>

namespace ccl::detail {
namespace {

// All mutexes of the process. Its own mutex is held for some instructions only.
struct ForkMutexes {
  std::mutex mutex;
  ForkMutex* first = nullptr;
};
constinit ForkMutexes all;
static_assert(std::is_trivially_destructible_v<ForkMutexes>);  // outlives static objects

}  // namespace

bool lock_for_fork(std::mutex& mutex) {
  constexpr int max_tries = 100;  // a millisecond each
  for (int tries = 0; tries < max_tries; ++tries) {
    if (mutex.try_lock()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
  }
  return mutex.try_lock();
}

// Initialized when the library is loaded: see `forks_before`.
const int ForkMutex::registered_ = register_for_forks();

int ForkMutex::register_for_forks() {
  static const int done = ::pthread_atfork(before_fork, in_parent, in_child);
  return done;
}

ForkMutex::ForkMutex(std::function<void()> reset) : reset_(std::move(reset)) {
  const std::lock_guard lock{all.mutex};
  next_ = std::exchange(all.first, this);
}

ForkMutex::~ForkMutex() {
  const std::lock_guard lock{all.mutex};
  ForkMutex** at = &all.first;
  while (*at != this) at = &(*at)->next_;
  *at = next_;
}

void ForkMutex::before_fork() {
  all.mutex.lock();
  for (ForkMutex* one = all.first; one != nullptr; one = one->next_) {
    one->held_ = lock_for_fork(one->mutex_);
  }
}

void ForkMutex::in_parent() {
  for (ForkMutex* one = all.first; one != nullptr; one = one->next_) {
    if (std::exchange(one->held_, false)) one->mutex_.unlock();
  }
  all.mutex.unlock();
}

void ForkMutex::in_child() {
  for (ForkMutex* one = all.first; one != nullptr; one = one->next_) {
    if (std::exchange(one->held_, false)) {
      one->mutex_.unlock();
    } else {
      ::new (static_cast<void*>(&one->mutex_)) std::mutex;
      one->reset_();
    }
  }
  all.mutex.unlock();
}

}  // namespace ccl::detail
