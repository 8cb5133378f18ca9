#pragma once

#include <ccl/comm/report.hpp>
#include <ccl/comm/stream.hpp>
#include <ccl/types/result.hpp>

#include <string_view>
#include <utility>

namespace ccl {

class Communicator;

/// Communicator of an event. The texts live as long as the call of the hook.
struct CommEvent {
  std::string_view id;    ///< as in `FlightRecord::communicator`
  std::string_view name;  ///< `Config::name`
  int rank = -1;
  int ranks = 0;
  int device = -1;  ///< CUDA device; -1 on CPU
};

/// Call of an event.
struct CallEvent {
  const Communicator& comm;
  /// The call as its caller described it, until it is launched or has ended. From then on it is
  /// that of the flight recorder, with number, composition and times. Its `number` stays 0 if the
  /// call was refused, and in a communicator of one rank.
  Operation operation;
  Stream stream;
};

namespace detail {
template <class H>
concept HasOnCall = requires(const H& hooks, const CallEvent& event) { hooks.on_call(event); };
template <class H>
concept HasOnLaunch = requires(const H& hooks, const CallEvent& event) { hooks.on_launch(event); };
template <class H>
concept HasOnEnd = requires(const H& hooks, const CallEvent& event, const Result<void>& result) {
  hooks.on_end(event, result);
};
template <class H>
concept HasOnCreated =
    requires(const H& hooks, const CommEvent& event) { hooks.on_created(event); };
template <class H>
concept HasOnStall = requires(const H& hooks, const CommEvent& event, const Report& report) {
  hooks.on_stall(event, report);
};
template <class H>
concept HasOnFailed = requires(const H& hooks, const CommEvent& event, const Error& error) {
  hooks.on_failed(event, error);
};
template <class H>
concept HasOnClosed = requires(const H& hooks, const CommEvent& event) { hooks.on_closed(event); };

template <class H>
concept HooksCalls = HasOnCall<H> || HasOnLaunch<H> || HasOnEnd<H>;
template <class H>
concept HooksCommunicators = HasOnCreated<H> || HasOnStall<H> || HasOnFailed<H> || HasOnClosed<H>;

/// True if `H` has a member of this name that takes other arguments, or that is not const.
template <class H>
constexpr bool misses_events() {
  return (requires { &H::on_call; } && !HasOnCall<H>) ||
         (requires { &H::on_launch; } && !HasOnLaunch<H>) ||
         (requires { &H::on_end; } && !HasOnEnd<H>) ||
         (requires { &H::on_created; } && !HasOnCreated<H>) ||
         (requires { &H::on_stall; } && !HasOnStall<H>) ||
         (requires { &H::on_failed; } && !HasOnFailed<H>) ||
         (requires { &H::on_closed; } && !HasOnClosed<H>);
}

/// Hooks of a communicator, for the compiled runtime.
class CommHooks {
 public:
  virtual ~CommHooks() = default;
  virtual void created(const CommEvent&) const noexcept = 0;
  virtual void stalled(const CommEvent&, const Report&) const noexcept = 0;
  virtual void failed(const CommEvent&, const Error&) const noexcept = 0;
  virtual void closed(const CommEvent&) const noexcept = 0;
};

template <class H>
class CommHooksOf final : public CommHooks {
 public:
  explicit CommHooksOf(H hooks) : hooks_{std::move(hooks)} {}
  void created(const CommEvent& event) const noexcept override {
    if constexpr (HasOnCreated<H>) hooks_.on_created(event);
  }
  void stalled(const CommEvent& event, const Report& report) const noexcept override {
    if constexpr (HasOnStall<H>) hooks_.on_stall(event, report);
  }
  void failed(const CommEvent& event, const Error& error) const noexcept override {
    if constexpr (HasOnFailed<H>) hooks_.on_failed(event, error);
  }
  void closed(const CommEvent& event) const noexcept override {
    if constexpr (HasOnClosed<H>) hooks_.on_closed(event);
  }

 private:
  [[no_unique_address]] H hooks_;
};
}  // namespace detail

/// Receiver of events. It has some of these functions, const or static:
/// - `on_call(const CallEvent&)`: a call begins.
/// - `on_launch(const CallEvent&)`: the call is queued on its stream.
/// - `on_end(const CallEvent&, const Result<void>&)`: the call has run on CPU lanes, was refused or
///   has failed. On GPUs a call that is launched has no further event.
/// - `on_created(const CommEvent&)`, `on_closed(const CommEvent&)`: the communicator is up; it was
///   finalized, or its last handle was destroyed.
/// - `on_stall(const CommEvent&, const Report&)`: this rank has logged that an operation makes no
///   progress, and why.
/// - `on_failed(const CommEvent&, const Error&)`: the communicator has failed. Once.
///
/// Each handle holds a copy, so shared state belongs behind a `std::shared_ptr`. Any thread may
/// call a hook, several at once. Events of a communicator may come for up to 2 s after its last
/// handle was destroyed, until `on_closed`. A hook must not throw, and makes no call of the
/// communicator that can wait. A creation that fails has no events.
template <class H>
concept Hooks =
    (detail::HooksCalls<H> || detail::HooksCommunicators<H>)&&!detail::misses_events<H>();

}  // namespace ccl
