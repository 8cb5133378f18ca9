#pragma once

#include <memory>
#include <mutex>
#include <vector>

namespace ccl::detail {

/// Threads that run the CPU lanes of launches in place of the program's threads, because lanes that
/// help the proxy may be left behind in a call to another library. A launch takes an idle thread,
/// or starts one.
class LaneRunners {
 public:
  LaneRunners();
  /// Ends the threads, which are idle.
  ~LaneRunners();
  LaneRunners(const LaneRunners&) = delete;
  LaneRunners& operator=(const LaneRunners&) = delete;

  /// Runs `body(of)` on a thread. Returns when it has ended, or when nothing of it runs any more
  /// but lanes that are left behind. Throws what `body` throws. Returns false, and has done
  /// nothing, if the system has no thread left.
  bool run(void (*body)(void* of), void* of);

 private:
  struct Runner;
  std::shared_ptr<Runner> take();
  std::mutex mutex_;
  std::vector<std::shared_ptr<Runner>> idle_;
};

}  // namespace ccl::detail
