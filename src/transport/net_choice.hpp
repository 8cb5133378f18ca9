#pragma once

#include <ccl/types/result.hpp>

namespace ccl::detail {

/// Whether CCL_NET leaves the network `name` ("ib" or "socket") to use; other names that it may
/// hold are those of plugins, which ccl has none of, and forbid nothing.
Result<bool> net_allows(const char* name);

}  // namespace ccl::detail
