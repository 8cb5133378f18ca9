#pragma once

#include <ccl/comm/flight_record.hpp>

#include <vector>

namespace ccl::detail {

struct CommState;

/// Returns what the proxies of this rank have noted, by the clock of its operations. Any thread;
/// takes short locks only.
std::vector<Transfer> transfers(const CommState& state);

}  // namespace ccl::detail
