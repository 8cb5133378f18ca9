#pragma once

// Task of a proxy that a test posts to.
#include <ccl/detail/runtime/proxy_engine.hpp>

#include <atomic>
#include <chrono>
#include <thread>

#include <poll.h>
#include <sys/socket.h>

namespace ccl::test::proxy {

/// Moves steps from `posted` to `done`; optionally only when its descriptor is readable.
class Mover : public ProxyTask {
 public:
  explicit Mover(int fd = -1) : fd_{fd} {}
  Progress progress(ProxyCounters& counters) override {
    ++sequencer;
    if (inside_.exchange(true)) overlapped = true;
    Progress progress = Progress::none;
    if (fd_ >= 0) {
      char byte = 0;
      if (::recv(fd_, &byte, 1, MSG_DONTWAIT) == 1) progress = count(counters);
    } else if (done.load() < posted.load()) {
      progress = count(counters);
    }
    if (end.load() && done.load() == posted.load()) progress = Progress::ended;
    inside_ = false;
    return progress;
  }
  ProxyInterest interest() const override {
    return {fd_, short(fd_ >= 0 ? POLLIN : 0), fd_ < 0 && done.load() < posted.load(), polled,
            for_helpers};
  }
  bool ending() const override { return end.load(); }

  std::atomic<Word> posted{0}, done{0}, sequencer{0};
  std::atomic<bool> end{false}, overlapped{false};
  std::atomic<bool> polled{false}, for_helpers{false};

 private:
  Progress count(ProxyCounters& counters) {
    done.fetch_add(1);
    ++counters.steps;
    counters.bytes += 8;
    return Progress::some;
  }
  int fd_;
  std::atomic<bool> inside_{false};
};

template <class Done>
bool wait_until(Done done) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds{30};
  while (!done()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::yield();
  }
  return true;
}

}  // namespace ccl::test::proxy
