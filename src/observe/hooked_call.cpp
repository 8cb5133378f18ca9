#include <ccl/detail/runtime/flight_recorder.hpp>
#include <ccl/detail/runtime/hooked_call.hpp>

#include <utility>

#include "comm/state.hpp"

namespace ccl::detail {

Word latest_call(const Communicator& comm) {
  const FlightRecorder* const recorder = Access::state(comm)->observers.recorder();
  return recorder == nullptr ? 0 : recorder->latest_ticket();
}

Word find_call(const Communicator& comm, Word ticket, Operation& op) {
  const FlightRecorder* const recorder = Access::state(comm)->observers.recorder();
  return recorder == nullptr ? 0 : recorder->find_after(ticket, op);
}

Result<void> result_of(const Communicator& comm, Word ticket, Operation& op) {
  const FlightRecorder* const recorder = Access::state(comm)->observers.recorder();
  if (recorder != nullptr && recorder->read(ticket, op)) {
    if (op.state == OpState::done) return {};
  }
  const CommState& state = *Access::state(comm);
  if (auto well = state.status.result(); !well) {
    return fail(state.annotate(std::move(well).error()));
  }
  if (op.state != OpState::failed) return {};
  return fail(state.annotate(
      {Errc::internal, "the call has failed; synchronize of its stream has the error"}));
}

}  // namespace ccl::detail
