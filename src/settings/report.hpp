#pragma once

#include <string>
#include <string_view>

namespace ccl::detail {

/// Returns the variable that sets a setting, such as NCCL_SOCKET_IFNAME, for texts about its value.
/// Without one, returns ccl's name.
std::string variable_of(std::string_view setting);

}  // namespace ccl::detail
