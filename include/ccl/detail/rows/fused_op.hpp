#pragma once

#include <ccl/algo/rank_counts.hpp>

namespace ccl::detail {

/// Operation of `Fused` in names and in the flight recorder.
template <class P, class E>
struct FusedOp {
  static constexpr const char* name = "fused_all_reduce";
  static constexpr bool reduces = true, rooted = false;
  static constexpr int max_ranks = max_unrolled_ranks;  // of kernels compiled for their number
};

}  // namespace ccl::detail
