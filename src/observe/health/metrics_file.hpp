#pragma once

#include <atomic>
#include <chrono>
#include <mutex>
#include <string>
#include <string_view>

namespace ccl::detail::health {

/// File of this process for the node exporter, as CCL_METRICS_DIR and CCL_METRICS_INTERVAL set it.
class MetricsFile {
 public:
  /// Reads the settings. Without CCL_METRICS_DIR there is no file.
  void configure();
  bool wanted() const { return !path_.empty(); }
  bool due() const { return wanted() && std::chrono::steady_clock::now() >= next_; }
  /// Replaces the file in one step. A failure is one warning.
  void write(std::string_view text);
  /// Removes the file, because its numbers would stand still. Any thread; `write` does nothing from
  /// then on. Does not wait for a file system that hangs.
  void remove();
  /// Ends that for `write`. Any thread; does not wait.
  void resume() { removed_ = false; }

 private:
  std::string path_;
  std::chrono::duration<double> interval_{15};
  std::chrono::steady_clock::time_point next_{};
  bool warned_ = false;
  std::mutex mutex_;  // held while files are written or removed
  std::atomic<bool> removed_{false};
};

}  // namespace ccl::detail::health
