#pragma once

#include <ccl/element/element.hpp>
#include <ccl/element/reduce_op.hpp>
#include <ccl/types/operations.hpp>

#include <cuda/std/type_traits>

namespace ccl::detail {

/// Functor that a switch applies for a reduction: Sum, Min, Max, or void if it has none. Lanes
/// scale before the switch adds (PreMulSum) and divide afterwards (Avg).
template <class F>
using SwitchFunctor = cuda::std::conditional_t<
    is_one_of<F, Sum, Avg, AvgBegun, AvgEnded, PreMulSum>, Sum,
    cuda::std::conditional_t<is_one_of<F, Min>, Min,
                             cuda::std::conditional_t<is_one_of<F, Max>, Max, void>>>;

/// Reductions of NVSwitches: `multimem.ld_reduce` of sm_90.
/// - Sum: float, double, float16, bfloat16, and integers of 4 and 8 bytes.
/// - Min, Max: float16, bfloat16, and integers of 4 and 8 bytes.
///
/// Sums of 16-bit floats accumulate in float and are rounded once.
template <class F, class T>
struct SwitchOp {
  using Functor = SwitchFunctor<F>;
  static constexpr bool known_functor = !cuda::std::is_void_v<Functor>;
  static constexpr bool half = is_one_of<T, float16, bfloat16>;
  static constexpr bool integer = Integer<T> && (sizeof(T) == 4 || sizeof(T) == 8);
  static constexpr bool adds = half || integer || is_one_of<T, float, double>;
  static constexpr bool compares = half || integer;
  static constexpr bool possible =
      known_functor && (cuda::std::is_same_v<Functor, Sum> ? adds : compares);
};

}  // namespace ccl::detail
