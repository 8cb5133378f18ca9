#pragma once

#include <ccl/types/result.hpp>

#include <cstddef>
#include <memory>

#include "comm/edges/window_state.hpp"

namespace ccl::detail::nccl {

// Memory of ncclMemAlloc on CPU ranks. Ranks of other processes map it in windows, and forked
// children share it with their parent.

/// Allocates zeroed memory, in whole pages. Beyond `max_shareable` allocations, and where the
/// system has no shared memory left, it is memory of this process alone.
Result<void*> allocate_on_host(std::size_t bytes);
/// Number of allocations that others can map: each holds a descriptor.
constexpr std::size_t max_shareable = 256;
/// Frees memory of `allocate_on_host`; windows keep what they hold. Fails with
/// `Errc::invalid_argument` for any other address.
Result<void> release_on_host(void* memory);
/// True if `allocate_on_host` has returned this address, and it was not freed.
bool host_block_begins(const void* memory);
/// Returns the shareable memory that contains these bytes; null if none does.
std::shared_ptr<SharedBlock> host_block_of(const void* data, std::size_t bytes);

}  // namespace ccl::detail::nccl
