#include "comm/observe/outside_call.hpp"

#include <string_view>

#include "comm/state.hpp"

namespace ccl::detail {

OutsideCall::OutsideCall(CommState& state, const Operation& op, Index element_bytes)
    : state_{state} {
  FlightRecorder* const recorder = state.observers.recorder();
  if (recorder == nullptr || !state.status.ok()) return;
  const std::string_view what{op.what};
  CallInfo info;
  info.count = op.count;
  info.element_bytes = int(element_bytes);
  const int operation = CallCounters::operation_of(what.substr(0, what.find('/')));
  const auto [cell, tally] =
      state.observers.counters().call(operation, info, state.identity.ranks());
  cell_ = cell;
  ticket_ = recorder->note(op, false, tally).ticket;
  recorder->started(ticket_);
}

void OutsideCall::ended(const Result<void>& result) const {
  if (ticket_ == 0 || (result && state_.device.gpu)) return;
  const bool well = result.has_value();
  CallCounters& counters = state_.observers.counters();
  state_.observers.recorder()->ended(ticket_, well, counters.end_tally(cell_));
  if (!well) counters.failed(cell_);
}

}  // namespace ccl::detail
