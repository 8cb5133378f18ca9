#pragma once

#include <ccl/comm/flight_record.hpp>

#include <vector>

namespace ccl::detail {

struct CommState;

/// Phases that lanes have noted, by the clock of operations.
struct AlignedPhases {
  std::vector<LanePhases> phases;
  long long clock_ns = 0;  // added to the clock of the lanes; 0: no phases
};
/// Returns the phases that lanes of this rank have noted. Any thread; takes short locks only.
AlignedPhases lane_phases(CommState& state);

/// Returns the nanoseconds by which the system clock, that of operations, is ahead of the steady
/// clock of CPU lanes and proxies.
long long system_clock_offset();

/// Times by the clock of lanes, and the operation that they belong to by the clock of the host.
struct PhaseClock {
  Word queued_ns = 0;  // call of the operation, by the host
  Word begun_ns = 0;   // by the lanes
};
/// Returns what is to be added to times of a GPU's clock. No kernel begins before its call, so it
/// is the largest difference of both; on a stream without other work it is too small by the time of
/// a launch.
long long gpu_clock_offset(const std::vector<PhaseClock>& pairs);

}  // namespace ccl::detail
