#pragma once

#include <ccl/detail/exec/kernel_registry.hpp>
#include <ccl/detail/multicast/work.hpp>

namespace ccl::detail {

/// Kernels over emulated multicast memory.
template <class Op, class Algo, class Proto, class R>
struct MulticastKernels {
  /// Makes a launch, or several if the message is longer than the scratch.
  static inline int (*launch)(const MulticastWork<R>&, const DeviceTarget&) = nullptr;
  /// Returns the maximum elements of a launch. 0 if the scratch has no tile for each rank.
  static inline Index (*max_elements)(const MulticastWork<R>&) = nullptr;
  /// Makes one launch whose buffers may lie in windows; null if the algorithm binds none.
  static inline int (*launch_in_windows)(const MulticastWork<R>&, const DeviceTarget&) = nullptr;
};
/// Kernels with the instructions of NVLink multicast. Only <ccl/nvls.cuh> has them.
template <class Op, class Algo, class Proto, class R>
struct SwitchKernels {
  static inline int (*launch)(const MulticastWork<R>&, const DeviceTarget&) = nullptr;
  static inline Index (*max_elements)(const MulticastWork<R>&) = nullptr;
  static inline int (*launch_in_windows)(const MulticastWork<R>&, const DeviceTarget&) = nullptr;
};

}  // namespace ccl::detail
