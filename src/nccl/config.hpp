#pragma once

#include <ccl/comm/config.hpp>
#include <ccl/types/result.hpp>

#include <nccl.h>

namespace ccl::detail::nccl {

/// Converts the settings of a configuration that ccl has; a configuration of an older header is
/// shorter. Returns `otherwise`, or the default, for null. Fails with `Errc::invalid_argument`, or
/// with `Errc::bad_setting` if a setting of the environment cannot be.
Result<Config> read_config(const ncclConfig_t* given, const Config* otherwise = nullptr);

}  // namespace ccl::detail::nccl
