#pragma once

#include <ccl/types/result.hpp>

namespace ccl::detail {

/// True if CCL_NET allows the network `name` ("ib" or "socket"). Other values of CCL_NET are plugin
/// names; ccl has no plugins, and these forbid nothing.
Result<bool> net_allows(const char* name);

}  // namespace ccl::detail
