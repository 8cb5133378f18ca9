#pragma once

#include <ccl/detail/runtime/bootstrap.hpp>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "net/engine.hpp"
#include "net/socket.hpp"

namespace ccl::detail {

/// Waits of a bootstrap's calls. A wait fails if no progress is made within its limit.
class ProgressWait {
 public:
  explicit ProgressWait(Bootstrap::Core& core);

  /// Counts one event that shows that other ranks make progress.
  void count(const net::Lock&) { ++progress_; }
  /// Returns the number of these events.
  std::uint64_t counted() const { return progress_; }
  /// Wakes all waiting threads.
  void notify(const net::Lock&) { changed_.notify_all(); }
  void sleep(net::Lock& lock, std::chrono::milliseconds most) { changed_.wait_for(lock, most); }
  void sleep_until(net::Lock& lock, net::Clock::time_point due) { changed_.wait_until(lock, due); }
  void sleep(net::Lock& lock, double max_s, const std::function<bool()>& done) {
    changed_.wait_for(lock, std::chrono::duration<double>(max_s), done);
  }
  /// Waits until `done`, until the bootstrap fails, or until the limit has passed without progress.
  /// The limit is `limit_s`, which `setting` raises, or else the bootstrap's deadline; 0 sets none.
  /// `missing` returns the ranks that the message names. `needed`: which departed ranks the wait
  /// cannot do without.
  Result<void> wait(net::Lock& lock, const std::function<bool()>& done, const char* what,
                    const std::function<std::vector<int>()>& missing = {},
                    std::optional<double> limit_s = {}, const char* setting = "CCL_TIMEOUT",
                    int needed = all_ranks);
  static constexpr int all_ranks = -1;  // else the number of one rank

 private:
  struct Wait {
    const std::function<bool()>& done;
    const char* what;
    std::optional<double> limit_s;
    const char* setting;
    double max_s;        // limit without progress
    std::uint64_t seen;  // progress at the start of the limit
  };
  enum class Overdue { done, progressed, timed_out };
  /// Returns a departed rank that a wait needs, or -1.
  int departed_of(int needed) const;
  net::Deadline deadline(const net::Lock& lock, const Wait& wait) const;
  Result<Overdue> overdue(net::Lock& lock, const Wait& wait, const std::vector<int>& late);

  Bootstrap::Core& core_;
  std::condition_variable changed_;
  std::uint64_t progress_ = 0;
  const unsigned refused_before_;  // callers, by this process
};

}  // namespace ccl::detail
