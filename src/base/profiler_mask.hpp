#pragma once

#include <atomic>

namespace ccl::detail {

/// Mask of the kinds of events that a profiler plug-in of this process wants. The plug-in may write
/// it at any time. Null: no plug-in is loaded.
inline std::atomic<int*> profiler_mask{nullptr};

}  // namespace ccl::detail
