#pragma once

#include <ccl/types/result.hpp>

#include <cstddef>
#include <memory>

#include "gpu/gpu.hpp"

namespace ccl::detail::nccl {

// Memory of ncclMemAlloc on a GPU. It has a cuMem handle, so that other processes, other hosts of
// an NVLink domain and NICs can have it, and all GPUs of this process that reach it may use it.
// Without cuMem handles (CCL_CUMEM_ENABLE=0, or a GPU that has none) it is legacy memory.

/// Allocates zeroed memory of at least `bytes` bytes, which must not be 0.
Result<void*> allocate_shareable(int device, std::size_t bytes);
/// Returns false if `memory` is not the address of such memory.
bool release_shareable(void* memory);
/// Returns the GPU whose memory belongs to the process and to no communicator.
Result<std::shared_ptr<Gpu>> gpu_of_process(int device);

}  // namespace ccl::detail::nccl
