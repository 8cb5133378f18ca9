#pragma once

#include <ccl/detail/runtime/call_info.hpp>
#include <ccl/detail/runtime/connections.hpp>

#include <memory>
#include <utility>

namespace ccl::detail {

/// Call that the flight recorder lists as queued until a `Launch` runs it. A call that no launch
/// runs is recorded as failed.
class QueuedCall {
 public:
  QueuedCall(std::shared_ptr<Connections> of, const CallInfo& info);
  ~QueuedCall() {
    if (connections_ && !launched_) record_failure();
  }
  QueuedCall(QueuedCall&&) noexcept = default;
  QueuedCall& operator=(QueuedCall&&) = delete;

  Connections& connections() const { return *connections_; }
  /// Description of the call, with its numbers.
  const CallInfo& info() const { return info_; }

 private:
  friend class Launch;
  friend class ShortCall;
  struct Recorded {};
  /// Call that has its numbers and is recorded.
  QueuedCall(Recorded, std::shared_ptr<Connections> of, const CallInfo& info)
      : connections_{std::move(of)}, info_{info} {}
  void record_failure() const;

  std::shared_ptr<Connections> connections_;  // null if moved from
  CallInfo info_;
  bool launched_ = false;  // a launch records the end
};

}  // namespace ccl::detail
