#pragma once

#include <ccl/detail/exec/kernel_registry.hpp>
#include <ccl/detail/rows/work.hpp>

namespace ccl::detail {

/// Launch over the rows of a matrix, or several if the rows do not fit into the scratch.
template <class Algo, class Proto, class P, class E>
struct RowKernels {
  static inline int (*launch)(const RowWork<P, E>&, const DeviceTarget&) = nullptr;
  /// Returns the packets of each half of the scratch that a row takes. 0 if no kernel exists for
  /// `ranks` ranks.
  static inline Index (*row_packets)(int length, int ranks) = nullptr;
  static inline int max_length = 0;
};

}  // namespace ccl::detail
