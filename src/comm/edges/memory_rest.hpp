#pragma once

#include <ccl/types/result.hpp>
#include <ccl/types/word.hpp>

#include "comm/state.hpp"

namespace ccl::detail {

/// GPU memory that a rank's communicator has allocated, its levels included.
struct GpuBytes {
  Index all = 0;
  Index can_rest = 0;  // of cuMem handles, and registered with no NIC
};
GpuBytes gpu_bytes(const CommState& state);

/// Gives the GPU memory of the communicator back on all ranks, once all calls of all ranks have
/// ended. Its addresses stay reserved, and the host keeps what it holds. What the user has
/// allocated stays. Nothing may use the communicator until `wake_memory`. Fails on all ranks or on
/// none, and then the memory is as it was. Collective; `who` names the calling function in errors.
Result<void> rest_memory(CommState& state, const char* who);
/// Gives the GPU memory of a communicator that has failed back for good, once its calls have left.
/// Its ranks agree over `by`, another communicator of the same ranks. Fails on all ranks or on
/// none.
Result<void> rest_failed_memory(CommState& state, CommState& by, const char* who);
/// Takes GPU memory again at the same addresses, with what it held. Fails on all ranks or on none,
/// and then the memory rests on: it may be called again. Collective.
Result<void> wake_memory(CommState& state, const char* who);

}  // namespace ccl::detail
