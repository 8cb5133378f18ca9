#pragma once

#include <ccl/detail/runtime/settings.hpp>

namespace ccl::detail {

/// Returns the limit in seconds of the waits of creation: CCL_INIT_TIMEOUT, or three years if it
/// sets no limit.
inline Result<double> init_limit_s() {
  CCL_TRY(const double limit_s, setting_seconds("INIT_TIMEOUT"));
  return limit_s == 0 ? 1e8 : limit_s;
}

}  // namespace ccl::detail
