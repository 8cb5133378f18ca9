#pragma once

#include <ccl/comm/report.hpp>

#include <memory>
#include <span>
#include <vector>

#include "nccl/plug_in/profile.hpp"
#include "proxy/transfer_listener.hpp"

namespace ccl::detail::nccl {

/// Events of what proxies move for the calls of one CPU rank: one for each line that moves steps of
/// a call (ProxyOp), and one for each of its steps (ProxyStep). A step belongs to the call that
/// runs when the proxy sees it, unless it is one of an earlier call. Steps that come before their
/// call have no event. Any thread.
class ProxyEvents final : public TransferListener {
 public:
  explicit ProxyEvents(Profile& profile);
  ~ProxyEvents() override;

  std::shared_ptr<LineListener> line(const TransferLine& of, Index slot_bytes) override;

  /// Event of a call, or of a message of it.
  struct Parent {
    int peer = -1;       // of the message; -1: of all lines
    bool sends = false;  // of the message
    void* event = nullptr;
  };
  /// A call begins. One at a time.
  void begin_call(std::vector<Parent> parents);
  /// The call has returned. `steps` are those of the rank's wires now.
  void end_call(std::span<const WireSteps> steps);
  /// Ends all events. Nothing is reported from now on, and `profile` may end.
  void close();

 private:
  class Line;
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace ccl::detail::nccl
