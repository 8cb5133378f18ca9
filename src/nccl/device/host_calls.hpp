#pragma once

#include <ccl/types/result.hpp>

#include <driver_types.h>

namespace ccl::detail::nccl {

/// Calls `f(of)` once the work that is queued on the stream has ended, on a thread of CUDA's and
/// before later work. `f` must not call CUDA, and must not wait for a GPU. After a failure of the
/// GPU it is not called. Without device code in this library it is called at once.
Result<void> call_behind(cudaStream_t stream, void (*f)(void* of), void* of);

}  // namespace ccl::detail::nccl
