#include <ccl/detail/launch/short_call.hpp>

#include <mutex>
#include <utility>

#include "comm/observe/nvtx.hpp"
#include "comm/state.hpp"

namespace ccl::detail {

ShortCall::ShortCall(Connections& connections, const CallInfo& info) : connections_{connections} {
  CommState& state = *Access::state(connections.comm());
  CallState& calls = connections.calls();
  if (!state.is_usual() || state.limits.check || connections.tables().proxied ||
      !calls.sequencer.idle() || !calls.mutex.try_lock()) {
    return;
  }
  begun_ = true;
  CallInfo& own = calls.latest;
  own = info;
  own.composition = connections.number();
  own.call = calls.next_short_call();
  shown_ = begin_nvtx_range(connections, own);
  if (FlightRecorder* const recorder = state.observers.recorder(); recorder != nullptr) {
    const int operation = connections.operation();
    const auto [cell, tally] =
        state.observers.counters().call(operation, own, state.identity.ranks());
    const auto [ticket, number] = recorder->note_running(
        connections.shown_name(), own, operation == CallCounters::send_recv, tally);
    own.counter = cell;
    own.ticket = ticket;
    own.number = number;
  }
  calls.lane_failure = {};
  calls.watch.ticket = own.ticket;
}

void ShortCall::end(bool well) {
  CommState& state = *Access::state(connections_.comm());
  CallState& calls = connections_.calls();
  FlightRecorder* const recorder = state.observers.recorder();
  CallCounters& counters = state.observers.counters();
  const CallInfo& latest = calls.latest;
  if (recorder != nullptr) recorder->ended(latest.ticket, well, counters.end_tally(latest.counter));
  if (!well) counters.failed(latest.counter);
  if (shown_) end_nvtx_range();
  begun_ = false;
  calls.mutex.unlock();
}

Result<void> ShortCall::finish() {
  CallState& calls = connections_.calls();
  if (calls.lane_failure.peer == 0 && Access::state(connections_.comm())->status.ok()) {
    end(true);
    return {};
  }
  return launch().finish();
}

Launch ShortCall::launch() {
  CallState& calls = connections_.calls();
  Launch launch{Launch::Key{},
                QueuedCall{QueuedCall::Recorded{}, connections_.shared_from_this(), calls.latest},
                Launch::Lock{calls.mutex, std::adopt_lock}};
  launch.shown_ = shown_;
  begun_ = false;
  return launch;
}

}  // namespace ccl::detail
