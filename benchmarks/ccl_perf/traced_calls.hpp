#pragma once

#include <ccl/comm/flight_record.hpp>

#include <string_view>
#include <vector>

#include "explained.hpp"

namespace ccl::perf {

/// Call of a composition, and the phases of all its channels together.
struct TracedCall {
  Operation op;
  LanePhases phases;  // earliest begins, latest ends; `ended_ns` is 0: the lanes noted none
  int channels = 0;   // that noted phases
};

/// Returns the calls of the compositions whose name begins with `name`, oldest first.
std::vector<TracedCall> traced_calls(const FlightRecord& record, std::string_view name);

/// Returns the times between the phases. `late_ns` is added to the times of the lanes. A rank that
/// receives nothing has no time of data.
PartTimes parts_of(const TracedCall& of, long long late_ns = 0);

}  // namespace ccl::perf
