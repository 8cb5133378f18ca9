#pragma once

#include <ccl/types/result.hpp>

#include "nccl/abi/abi.hpp"
#include "nccl/abi/call.hpp"

namespace ccl::detail::nccl {

/// Vendor id of ccl's own options in `ncclCollConfig_t::ext`.
constexpr int ccl_vendor = 0x63636c;  // "ccl"
enum CclOption : int {
  deterministic_option = 1,  // val.i, 0 or 1: see CCL_DETERMINISTIC
};

/// Adds the options of one call. Members that ccl has no use for are named once in the log. Fails
/// with `Errc::invalid_argument` for what NCCL refuses. Null leaves the call as it is.
Result<void> read_call_config(const ncclCollConfig_t* given, Call& call);

}  // namespace ccl::detail::nccl
