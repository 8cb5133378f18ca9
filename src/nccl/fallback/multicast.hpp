#pragma once

#include <ccl/types/result.hpp>

namespace ccl::detail::nccl {

/// Keeps the library of CCL_NCCL_FALLBACK from using NVLink multicast, which it has on by default.
/// Call it before the library is opened, one thread at a time.
///
/// Without CCL_NVLS_ENABLE=1, it adds NCCL_NVLS_ENABLE=0 to the environment if that has no value.
/// Fails with `Errc::bad_setting` if it has another one, which is the program's or an env
/// plug-in's.
Result<void> keep_multicast_off();

}  // namespace ccl::detail::nccl
