#pragma once

#include <ccl/detail/runtime/connections.hpp>

#include <memory>
#include <utility>

namespace ccl::detail {

/// A call that a group makes beside others: its arguments, checked.
class RecordedCall {
 public:
  RecordedCall(std::shared_ptr<Connections> connections, const CallInfo& info)
      : connections_{std::move(connections)}, info_{info} {}
  virtual ~RecordedCall() = default;
  int place = 0;           // among the group's arguments, as this rank listed them
  bool may_share = false;  // the group's kernel has a part for its composition
  /// On a GPU, of what its composition has and calls in one launch divide among themselves: of its
  /// channels, or packets in each half of its scratch. Size 0: it is a launch of its own.
  struct Share {
    Index begin = 0, size = 0;
  };
  Share share;
  Connections& connections() const { return *connections_; }
  const std::shared_ptr<Connections>& shared_connections() const { return connections_; }
  CallInfo& info() { return info_; }
  Word ticket() const { return info_.ticket; }
  /// Collective: connects what its root wants.
  virtual Result<void> connect() { return {}; }
  /// On a GPU: the least share with which it can be a part of one launch with others, 0: it cannot;
  /// what its composition has; and, where a larger share makes it faster, what it moves. All ranks
  /// find the same, unless it decides alone.
  virtual Index wants() const { return 0; }
  virtual Index contains() const { return 0; }
  virtual Index bytes() const { return 0; }
  /// Whether other ranks may find another share. It then must not run ahead of a call that does not
  /// share the kernel, here or elsewhere.
  virtual bool decides_alone() const { return false; }
  /// All that lies between `Connections::help` and `Connections::finish`.
  virtual void run_on_host() = 0;

 private:
  std::shared_ptr<Connections> connections_;
  CallInfo info_;
};

/// A call that is a launch of its own on a GPU and that CPU ranks cannot make.
class GpuCall final : public RecordedCall {
 public:
  using RecordedCall::RecordedCall;
  void run_on_host() override {}  // not reached: `create` refused
};

/// Where a call goes that is given it for a stream.
struct Recorder {
  std::unique_ptr<RecordedCall> call{};
};

}  // namespace ccl::detail
