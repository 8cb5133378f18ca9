#pragma once

#include <ccl/types/result.hpp>

#include <memory>

namespace ccl::detail {

struct CommState;

/// Where CCL_REPORT_SIGNAL names a signal: each time the process gets it, `state` logs a report of
/// what its ranks do, until it is gone.
Result<void> report_on_signal(std::weak_ptr<CommState> state);

}  // namespace ccl::detail
