#pragma once

#include <ccl/detail/base/status.hpp>
#include <ccl/detail/runtime/bootstrap.hpp>
#include <ccl/types/result.hpp>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>

namespace ccl::detail {

/// Progress of an asynchronous creation. A blocking creation leaves it as it is.
class Creation {
 public:
  /// Called before the creating thread starts.
  void begin() { running_ = true; }
  /// The creating thread has not started.
  void cancel();
  bool running() const { return running_.load(std::memory_order_acquire); }
  /// Error of the creation itself. Valid once `running` is false.
  const std::optional<Error>& failure() const { return failure_; }
  /// Sets the status to `error`. Returns true if the creation still runs.
  bool fail_while_running(Status& status, const Error& error);
  /// Records the error of the creating thread.
  void fail(Error error, Status& status) noexcept;
  /// Ends the creation, called by its thread. If another thread has aborted the communicator
  /// meanwhile, sends that error through `bootstrap`, which may be null.
  void finish(const Status& status, Bootstrap* bootstrap) noexcept;
  /// Blocks until the creation has ended.
  void wait();

 private:
  std::atomic<bool> running_{false};
  std::optional<Error> failure_;
  std::mutex mutex_;
  std::condition_variable ended_;
};

/// Fails with `Errc::invalid_argument` unless `rank` is one of `ranks`.
Result<void> check_shape(int rank, int ranks);

}  // namespace ccl::detail
