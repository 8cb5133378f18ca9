#pragma once

#include <ccl/detail/exec/kernel_registry.hpp>
#include <ccl/detail/peer/direct_work.hpp>

namespace ccl::detail {

/// Launch of a reduction that reads the peers' buffers. `work` is complete but for the shape.
template <class Op, class Algo, class Proto, class R>
struct DirectKernels {
  static inline int (*launch)(const DirectWork<R>&, const DeviceTarget&) = nullptr;
};

}  // namespace ccl::detail
