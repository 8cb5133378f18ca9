#pragma once

#include <string>
#include <string_view>

namespace ccl::detail {

/// Logs what this process's variables are worth, each variable once:
/// - at INFO, each that sets a setting, and each NCCL_ name that ccl does not read;
/// - as a warning, each NCCL_ value that does not fit, so that the initial value counts;
/// - as a warning on rank 0, each CCL_ name that is no setting.
void report_settings(int rank);
/// Returns the variable that sets a setting, such as NCCL_SOCKET_IFNAME, for texts about its value.
/// Without one, returns ccl's name.
std::string variable_of(std::string_view setting);

}  // namespace ccl::detail
