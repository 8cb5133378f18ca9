#pragma once

#include <ccl/detail/exec/kernel_registry.hpp>

namespace ccl::detail {

/// Launch over a rank's own elements. A functor converts each `T` to a `U`. The output may be the
/// input if both types have one size.
template <class F, class T, class U>
struct MapKernels {
  static inline int (*launch)(const F&, const void* input, void* output, Index count,
                              const DeviceTarget&) = nullptr;
};

/// Loaders of the `MapKernels` of one functor.
template <class F>
struct MapKernelList {
  static inline KernelLoader* first = nullptr;
};

}  // namespace ccl::detail
