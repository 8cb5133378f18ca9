#pragma once

#include <atomic>

namespace ccl::detail {

/// Mask of the kinds of events that a profiler plug-in of this process wants. The plug-in may write
/// it at any time. Null: no plug-in is loaded.
inline std::atomic<int*> profiler_mask{nullptr};

/// True if it wants the times of the channels of calls.
inline bool profiler_wants_channels() {
  constexpr int of_channels = 1 << 6;
  const int* const mask = profiler_mask.load(std::memory_order_relaxed);
  return mask != nullptr && (__atomic_load_n(mask, __ATOMIC_RELAXED) & of_channels) != 0;
}

}  // namespace ccl::detail
