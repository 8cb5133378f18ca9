#include <ccl/detail/base/biased_mutex.hpp>

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>
#include <vector>

#include "support/catch.hpp"

using ccl::detail::BiasedMutex;

namespace {

/// Locks it so often in a row that this thread becomes its owner.
void own(BiasedMutex& mutex) {
  BiasedMutex::prepare();
  for (int n = 0; n < 200; ++n) {
    const std::lock_guard lock{mutex};
  }
}
bool try_elsewhere(BiasedMutex& mutex) {
  bool got = false;
  std::thread{[&] {
    got = mutex.try_lock();
    if (got) mutex.unlock();
  }}.join();
  return got;
}

}  // namespace

TEST_CASE("an owner's lock keeps other threads out, and they keep the owner out") {
  BiasedMutex mutex;
  own(mutex);
  mutex.lock();
  CHECK_FALSE(try_elsewhere(mutex));
  mutex.unlock();
  CHECK(try_elsewhere(mutex));
  std::atomic<int> step{0};
  std::thread other{[&] {
    mutex.lock();
    step = 1;
    while (step != 2) std::this_thread::yield();
    mutex.unlock();
  }};
  while (step != 1) std::this_thread::yield();
  CHECK_FALSE(mutex.try_lock());
  step = 2;
  mutex.lock();
  mutex.unlock();
  other.join();
}

TEST_CASE("a thread that waits for an owner gets the lock when the owner ends") {
  BiasedMutex mutex;
  own(mutex);
  int value = 0;
  mutex.lock();
  std::thread other{[&] {
    const std::lock_guard lock{mutex};
    value = value * 10 + 2;
  }};
  std::this_thread::sleep_for(std::chrono::milliseconds{20});
  value = value * 10 + 1;
  mutex.unlock();
  other.join();
  CHECK(value == 12);
}

TEST_CASE("turns of an owner and of threads that come rarely or often lose nothing") {
  for (const int pause_us : {0, 50}) {
    BiasedMutex mutex;
    own(mutex);
    long count = 0;  // guarded by `mutex`
    std::vector<std::thread> others;
    for (int t = 0; t < 3; ++t) {
      others.emplace_back([&mutex, &count, pause_us] {
        for (int n = 0; n < 300; ++n) {
          if (pause_us > 0) std::this_thread::sleep_for(std::chrono::microseconds{pause_us});
          const std::lock_guard lock{mutex};
          ++count;
        }
      });
    }
    for (int n = 0; n < 200'000; ++n) {
      const std::lock_guard lock{mutex};
      ++count;
    }
    for (auto& other : others) other.join();
    CHECK(count == 200'000 + 3 * 300);
  }
}

TEST_CASE("after its owner another thread may lock it for good") {
  BiasedMutex mutex;
  std::thread{[&] { own(mutex); }}.join();
  own(mutex);
  own(mutex);
  mutex.lock();
  CHECK_FALSE(try_elsewhere(mutex));
  mutex.unlock();
  CHECK(try_elsewhere(mutex));
}
