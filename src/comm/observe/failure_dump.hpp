#pragma once

#include <ccl/comm/flight_record.hpp>
#include <ccl/types/result.hpp>

namespace ccl::detail {

struct CommState;

/// Returns what this rank remembers of its operations, and its failure.
FlightRecord flight_record(CommState& state);

/// When the communicator fails, notifies its hooks and writes its flight record to CCL_DUMP_DIR,
/// once. The network thread looks for the failure, so a rank that is in no call does it, too. Does
/// nothing without hooks and setting.
Result<void> observe_failure(CommState& state);
/// Writes the record now, if the communicator has failed and has not written it. Calls that return
/// the failure use it, because the program may end next.
void dump_failure(CommState& state) noexcept;
/// Writes the record now, if CCL_DUMP_DIR names a folder.
void dump_on_signal(CommState& state);
/// Ends the observation of a level of another communicator, which shares its failures.
void leave_dump_to_whole(CommState& level);
/// Ends the observation of `state`. A failure that nobody has seen is reported and recorded now.
void end_observed_failure(CommState& state) noexcept;

}  // namespace ccl::detail
