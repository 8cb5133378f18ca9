#pragma once

#include <ccl/comm/flight_record.hpp>
#include <ccl/types/result.hpp>

namespace ccl::detail {

struct CommState;

/// Returns what this rank remembers of its operations, and its failure.
FlightRecord flight_record(CommState& state);

/// Writes the flight record of `state` to CCL_DUMP_DIR when the communicator fails, once. The
/// network thread looks for the failure, so a rank that is in no call writes its record, too. Does
/// nothing without the setting.
Result<void> dump_on_failure(CommState& state);
/// Writes the record now, if the communicator has failed and has not written it. Calls that return
/// the failure use it, because the program may end next.
void dump_failure(CommState& state) noexcept;
/// Writes the record now, if CCL_DUMP_DIR names a folder.
void dump_on_signal(CommState& state);
/// Ends the observation of a level of another communicator, which shares its failures.
void leave_dump_to_whole(CommState& level);
/// Ends the observation of `state`, and writes the record of a failure that nobody has seen.
void end_failure_dump(CommState& state) noexcept;

}  // namespace ccl::detail
