#pragma once

#include <ccl/types/result.hpp>

namespace ccl::detail {

struct CommState;

/// Sends failures that nobody has sent to the other ranks, also while this rank is in no call:
/// those of a transport, of a kernel and of a level. The network thread looks for them twice a
/// second.
class FailureWatch {
 public:
  explicit FailureWatch(CommState& state) : state_{state} {}
  FailureWatch(const FailureWatch&) = delete;
  FailureWatch& operator=(const FailureWatch&) = delete;

  /// Starts. Called once, when the communicator has its bootstrap.
  Result<void> start();
  /// Ends. The state may be destroyed afterwards. Any thread, without the engine's mutex.
  void stop() noexcept;

  /// Looks once, with the engine's mutex. Returns true if there is nothing more to look for.
  bool look() noexcept;

 private:
  CommState& state_;
  bool started_ = false;
  bool failed_ = false;  // at the look before
};

}  // namespace ccl::detail
