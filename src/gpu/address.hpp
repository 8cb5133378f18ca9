#pragma once

#include "gpu/driver.hpp"

namespace ccl::detail {

/// Whether kernels on `device` may use `bytes` from `at` on: memory of that GPU, of one that it
/// addresses, or pinned. The error says what is there instead, and where it ends. Memory of cuMem
/// handles may be mapped in several pieces, other allocations are one. With the GPU's context
/// current; takes microseconds.
Result<void> check_address(const CudaDriver& cuda, int device, const char* what, const void* at,
                           Index bytes);

}  // namespace ccl::detail
