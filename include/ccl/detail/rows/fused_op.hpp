#pragma once

namespace ccl::detail {

/// Operation of `Fused` in names and in the flight recorder.
template <class P, class E>
struct FusedOp {
  static constexpr const char* name = "fused_all_reduce";
  static constexpr bool reduces = true, rooted = false;
  static constexpr bool of_rows = true;  // its kernels are compiled for their number of ranks
};

}  // namespace ccl::detail
