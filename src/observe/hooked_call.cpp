#include <ccl/detail/runtime/flight_recorder.hpp>
#include <ccl/detail/runtime/hooked_call.hpp>

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
  const bool known = recorder != nullptr && recorder->read(ticket, op);
  if (known && op.state == OpState::done) return {};
  CCL_CHECK(comm.status());
  if (!known) return {};  // a rank alone, or the recorder has overwritten the call
  return fail(Access::state(comm)->annotate(
      {Errc::internal, "the call has failed; synchronize of its stream has the error"}));
}

}  // namespace ccl::detail
