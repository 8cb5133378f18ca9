#include <ccl/detail/lanes/host_memory.hpp>

#include <atomic>
#include <chrono>
#include <ctime>
#include <thread>

#include "support/catch.hpp"
#include <sys/resource.h>

using namespace ccl;

TEST_CASE("a waiting thread helps through its own hook only") {
  struct Count {
    int calls = 0;
    static bool run(void* self) { return ++static_cast<Count*>(self)->calls % 2 == 0; }
  } count;
  detail::idle_hook = {&Count::run, &count};
  for (int n = 0; n < 10; ++n) detail::HostMemory::pause();
  std::thread([] {
    for (int n = 0; n < 10; ++n) detail::HostMemory::pause();
  }).join();
  detail::idle_hook = {};
  detail::HostMemory::pause();
  CHECK(count.calls == 10);
}

TEST_CASE("a long wait costs little processor time") {
  std::atomic<bool> stop{false};
  double busy_s = -1;
  long sleeps = 0;
  const auto begin = std::chrono::steady_clock::now();
  std::thread waiter([&] {
    while (!stop.load()) detail::HostMemory::pause();
    timespec used{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    busy_s = double(used.tv_sec) + double(used.tv_nsec) * 1e-9;
    rusage usage{};
    ::getrusage(RUSAGE_THREAD, &usage);
    sleeps = usage.ru_nvcsw;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds{400});
  stop = true;
  waiter.join();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  // Under load a wait restarts each time the thread is descheduled, but it must still sleep in the
  // end.
  CHECK((busy_s < took.count() / 2 || sleeps > 20));
}
