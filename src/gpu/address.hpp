#pragma once

#include "gpu/driver.hpp"

namespace ccl::detail {

/// Checks that kernels on `device` may access `bytes` bytes from `at` on. Allowed are memory of
/// that GPU, memory of a GPU that it addresses, and pinned memory. The error names the memory found
/// instead, and its end.
///
/// Memory of cuMem handles may be mapped in several pieces; other allocations are one piece. The
/// GPU's context must be current. Takes microseconds.
Result<void> check_address(const CudaDriver& cuda, int device, const char* what, const void* at,
                           Index bytes);

}  // namespace ccl::detail
