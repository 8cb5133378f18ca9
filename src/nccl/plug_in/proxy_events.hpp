#pragma once

#include <memory>
#include <vector>

#include "nccl/plug_in/profile.hpp"
#include "proxy/transfer_listener.hpp"

namespace ccl::detail::nccl {

/// Events of the proxy of one rank. Any thread.
/// - ProxyOp: a line that moves steps of a call. ProxyStep: one of its steps. NetPlugin: what a
///   network plug-in reports of a step.
/// - ProxyCtrl: what the proxy's thread does beside that.
///
/// A step belongs to the call that runs when the proxy sees it, unless the counts of the wire at
/// the end of an earlier call show that it is of that one. Steps that come while no call runs have
/// no event.
class ProxyEvents final : public TransferListener {
 public:
  explicit ProxyEvents(Profile& profile);
  ~ProxyEvents() override;

  std::shared_ptr<LineListener> line(const TransferLine& of, Index slot_bytes,
                                     const LineCounts& counts) override;
  void turned(ProxyTurn to, int tasks) noexcept override;

  /// Event of a call, or of a message of it.
  struct Parent {
    int peer = -1;       // of the message; -1: of all lines
    bool sends = false;  // of the message
    void* event = nullptr;
  };
  /// A call, whose lanes move steps from `begin` to `end`.
  struct Call {
    std::vector<Parent> parents;
    std::vector<int> compositions{};  // over whose lines; empty: any. Set by `narrow`
    bool over = false;                // `end` has come, perhaps before `begin`
  };
  using CallPtr = std::shared_ptr<Call>;

  /// True if the rank has lines.
  bool has_lines() const;
  /// The lanes of the call may move steps from now on. Calls on several streams may overlap.
  void begin(const CallPtr& call);
  /// The call uses the lines of these compositions alone.
  void narrow(const CallPtr& call, std::vector<int> compositions);
  /// Its lanes have moved all that they move, of which the proxy may have seen nothing yet.
  void end(const CallPtr& call);
  /// Ends all events. Nothing is reported from now on, and `profile` may end.
  void close();

 private:
  class Line;
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace ccl::detail::nccl
