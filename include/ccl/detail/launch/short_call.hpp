#pragma once

#include <ccl/detail/launch/launch.hpp>
#include <ccl/detail/runtime/call_info.hpp>
#include <ccl/detail/runtime/connections.hpp>

namespace ccl::detail {

/// Call on CPU lanes without a stream, if nothing keeps it from starting at once: the communicator
/// is well, no earlier call of the composition waits or runs, no proxy moves data, and ranks do not
/// compare their calls. It records what a `QueuedCall` with its turn and its `Launch` do, in a
/// fraction of their instructions.
class ShortCall {
 public:
  /// Begins the call and locks the composition. Does nothing if `begun` is false then.
  ShortCall(Connections& connections, const CallInfo& info);
  /// Records a call that has not finished as failed.
  ~ShortCall() {
    if (begun_) end(false);
  }
  ShortCall(const ShortCall&) = delete;
  ShortCall& operator=(const ShortCall&) = delete;

  bool begun() const { return begun_; }
  /// Ends the call after its lanes, as `Launch::finish` does.
  Result<void> finish();
  /// Makes it a launch that has begun, whose calls take over.
  Launch launch();

 private:
  void end(bool well);

  Connections& connections_;
  bool begun_ = false;
  bool shown_ = false;  // a range of NVTX is open
};

}  // namespace ccl::detail
