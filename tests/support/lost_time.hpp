#pragma once

// How long a busy machine keeps a thread from running: limits in wall time are extended by that.
#include <atomic>
#include <chrono>
#include <thread>

namespace ccl::test {

/// Sleeps for `nap`, and returns the seconds that it took beyond that.
inline double oversleep(std::chrono::milliseconds nap) {
  const auto began = std::chrono::steady_clock::now();
  std::this_thread::sleep_for(nap);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  return took.count() - std::chrono::duration<double>(nap).count();
}

/// Counts what a thread loses during the life of this object.
class LostTime {
 public:
  LostTime()
      : thread_{[this](const std::stop_token& stop) {
          while (!stop.stop_requested()) lost_ = lost_ + oversleep(std::chrono::milliseconds{5});
        }} {}
  double seconds() const { return lost_; }

 private:
  std::atomic<double> lost_{0};
  std::jthread thread_;
};

}  // namespace ccl::test
