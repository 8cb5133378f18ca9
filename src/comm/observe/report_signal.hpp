#pragma once

#include <ccl/types/result.hpp>

#include <memory>

namespace ccl::detail {

struct CommState;

/// Makes `state` log a report each time the process receives the signal CCL_REPORT_SIGNAL.
Result<void> report_on_signal(std::weak_ptr<CommState> state);

}  // namespace ccl::detail
