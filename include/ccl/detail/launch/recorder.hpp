#pragma once

#include <ccl/detail/launch/launch.hpp>
#include <ccl/detail/runtime/connections.hpp>

#include <memory>
#include <optional>
#include <utility>

namespace ccl::detail {

/// Call in a group of calls, with checked arguments.
class RecordedCall {
 public:
  RecordedCall(std::shared_ptr<Connections> connections, const CallInfo& info)
      : connections_{std::move(connections)}, info_{info} {}
  virtual ~RecordedCall() = default;
  int place = 0;           // position among the group's arguments of this rank
  bool may_share = false;  // the group's kernel has a part for its composition
  /// Part of the composition's channels, or of the packets in each half of its scratch, on a GPU.
  /// Calls of one launch divide them. Size 0: the call is a launch of its own.
  struct Share {
    Index begin = 0, size = 0;
  };
  Share share;
  Connections& connections() const { return *connections_; }
  const std::shared_ptr<Connections>& shared_connections() const { return connections_; }
  /// Records the call as queued. `take` gives it to a launch, once.
  void queue() {
    queued_.emplace(connections_, info_);
    info_ = queued_->info();
  }
  QueuedCall take() { return *std::move(queued_); }
  Word ticket() const { return info_.ticket; }
  /// Connects the wires that its root needs. Collective.
  virtual Result<void> connect() { return {}; }
  /// Smallest share with which the call can be a part of one launch on a GPU, or 0 if it cannot.
  /// All ranks find the same, unless the call decides alone.
  virtual Index wants() const { return 0; }
  /// Amount that the calls of its composition divide.
  virtual Index capacity() const { return 0; }
  /// Bytes that the call moves, if a larger share makes it faster.
  virtual Index bytes() const { return 0; }
  /// True if other ranks may find another share. The call then must not run ahead of a call that
  /// does not share the kernel, on any rank.
  virtual bool decides_alone() const { return false; }
  /// Runs the CPU lanes of `launch`.
  virtual void run_on_host(Launch& launch) = 0;

 private:
  std::shared_ptr<Connections> connections_;
  CallInfo info_;
  std::optional<QueuedCall> queued_;
};

/// Call that is a launch of its own on a GPU and that CPU ranks cannot make.
class GpuCall final : public RecordedCall {
 public:
  using RecordedCall::RecordedCall;
  void run_on_host(Launch&) override {}  // not reached: `create` refused
};

/// Place of a call that a group records instead of running it on a stream.
struct Recorder {
  std::unique_ptr<RecordedCall> call{};
};

}  // namespace ccl::detail
