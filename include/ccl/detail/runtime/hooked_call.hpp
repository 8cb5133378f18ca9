#pragma once

#include <ccl/comm/communicator.hpp>
#include <ccl/comm/hooks.hpp>
#include <ccl/comm/stream.hpp>
#include <ccl/detail/runtime/guarded.hpp>

#include <memory>
#include <utility>

namespace ccl::detail {

/// Returns the ticket of the latest call of this rank; 0 without a flight recorder.
Word latest_call(const Communicator& comm);
/// Replaces `op` by the record of the first call after `ticket` that is of its operation. Returns
/// the ticket of that call, or 0 if there is none.
Word find_call(const Communicator& comm, Word ticket, Operation& op);
/// Returns the result of the call `ticket`, which has run, and updates `op` by its record. Without
/// a record it is that of the communicator.
Result<void> result_of(const Communicator& comm, Word ticket, Operation& op);

template <class H>
void notify_end(const H& hooks, CallEvent event, const Result<void>& result) noexcept {
  if constexpr (HasOnEnd<H>) {
    event.operation.state = result ? OpState::done : OpState::failed;
    hooks.on_end(event, result);
  }
}
template <class H>
void notify_launch(const H& hooks, CallEvent event) noexcept {
  if constexpr (HasOnLaunch<H>) {
    if (event.comm.device() >= 0) event.operation.state = OpState::launched;
    hooks.on_launch(event);
  }
}

/// Notifies hooks, in the queue of a stream, that the call before has run.
template <class H>
struct NotifyEnd {
  H hooks;
  Communicator comm;
  Operation op;
  HostStream* stream;
  Word ticket = 0;
  Result<void> operator()() {
    const auto result = result_of(comm, ticket, op);
    notify_end(hooks, {comm, op, *stream}, result);
    return {};  // the call before has failed, if any has
  }
};

/// Returns `run()`, a call on `stream`, and notifies the hooks.
template <class H, class Run>
Result<void> with_hooks(const H& hooks, const Communicator& comm, const Operation& called,
                        Stream stream, Run&& run) {
  CallEvent event{comm, called, stream};
  if constexpr (HasOnCall<H>) [&]() noexcept { hooks.on_call(event); }();
  std::unique_ptr<HostCallOf<NotifyEnd<H>>> end;  // made first: nothing fails after the call
  if constexpr (HasOnEnd<H>) {
    const auto prepared = guarded(comm, [&]() -> Result<void> {  // the other ranks wait
      if (stream.host() != nullptr)
        end = host_call(NotifyEnd<H>{hooks, comm, called, stream.host()});
      return {};
    });
    if (!prepared) {
      notify_end(hooks, event, prepared);
      return prepared;
    }
  }
  const Word before = latest_call(comm);
  Result<void> result = run();
  const Word ticket = find_call(comm, before, event.operation);
  if (!result || (comm.device() < 0 && stream.host() == nullptr)) {
    notify_end(hooks, event, result);
    return result;
  }
  notify_launch(hooks, event);
  if constexpr (HasOnEnd<H>) {
    if (end != nullptr) {
      end->call.op = event.operation;
      end->call.ticket = ticket;
      HostQueue::push(*stream.host(), std::move(end));
    }
  }
  return result;
}

}  // namespace ccl::detail
