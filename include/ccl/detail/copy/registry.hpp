#pragma once

#include <ccl/detail/copy/work.hpp>
#include <ccl/detail/exec/kernel_registry.hpp>

namespace ccl::detail {

/// Kernels that `CopyEngine` runs beside the copies.
template <class Algo>
struct CopyKernels {
  static inline int (*sync)(const CopySync&, const DeviceTarget&) = nullptr;
  static inline int (*runs)(const CopyRuns&, const DeviceTarget&) = nullptr;
  static inline int (*load)(int device) = nullptr;
};
/// Launch of a reduction of `CopyEngine`.
template <class Op, class Algo, class Proto, class R>
struct CopyReduceKernels {
  static inline int (*launch)(const CopyReduction<R>&, const DeviceTarget&) = nullptr;
};

}  // namespace ccl::detail
