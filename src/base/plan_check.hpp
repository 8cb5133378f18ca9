#pragma once

#include <ccl/types/plan.hpp>

namespace ccl::detail {

/// Returns the rule that a plan with its final slot bytes breaks, or nullptr if ranks can run it.
const char* broken_rule(const Plan& plan);

}  // namespace ccl::detail
