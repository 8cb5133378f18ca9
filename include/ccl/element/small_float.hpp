#pragma once

#include <ccl/detail/base/bit_cast.hpp>
#include <ccl/types/macros.hpp>
#include <ccl/types/word.hpp>

CCL_ANY_SPACE_BEGIN

namespace ccl {
namespace detail {
/// Returns `a < b ? yes : no` by masks. A compiler that must respect floating-point traps does not
/// vectorize `?:` over float arithmetic. `a` and `b` must be below 2^31, because vectors compare
/// signed numbers faster.
CCL_HD constexpr cuda::std::uint32_t select_less(cuda::std::uint32_t a, cuda::std::uint32_t b,
                                                 cuda::std::uint32_t yes, cuda::std::uint32_t no) {
  const bool less = static_cast<cuda::std::int32_t>(a) < static_cast<cuda::std::int32_t>(b);
  const cuda::std::uint32_t mask = 0u - cuda::std::uint32_t(less);
  return (yes & mask) | (no & ~mask);
}
}  // namespace detail

/// Binary float with a sign, `ExponentBits` and `MantissaBits`, as bits with IEEE's bias. A value
/// too large becomes `Overflow`; codes from `Special` up are infinities and NaNs, and the largest
/// code is a NaN. Conversions use only shifts, adds and selects, because compilers vectorize them.
template <int ExponentBits, int MantissaBits, cuda::std::uint32_t Overflow,
          cuda::std::uint32_t Special>
struct SmallFloat {
  using Bits = cuda::std::uint32_t;
  static constexpr Bits sign = Bits{1} << (ExponentBits + MantissaBits);
  static constexpr Bits nan = sign - 1;

  /// Returns the value of `code`. The conversion is exact.
  CCL_HD static float widen(Bits code) {
    const Bits magnitude = code & nan;
    const Bits shifted = magnitude << shift;
    // A subnormal is the mantissa of a fixed power of two, minus that power.
    const Bits subnormal = as_bits(as_float(shifted + smallest_normal) - as_float(smallest_normal));
    Bits value =
        detail::select_less(magnitude, Bits{1} << MantissaBits, subnormal, shifted + rebias);
    value |= detail::select_less(magnitude, Special, 0, infinity);
    return as_float(value | (code & sign) << (31 - ExponentBits - MantissaBits));
  }

  /// Rounds to nearest, ties to even. A NaN becomes `nan`.
  CCL_HD static Bits narrow(float value) {
    const Bits bits = as_bits(value);
    const Bits magnitude = bits & 0x7fff'ffffu;
    const Bits odd = magnitude >> shift & 1;
    const Bits rounded = (magnitude + (half_step - 1) + odd - rebias) >> shift;
    const Bits normal = detail::select_less(rounded, Overflow, rounded, Overflow);
    // Adding a power of two whose last place is one subnormal step rounds to that step.
    const Bits subnormal = as_bits(as_float(magnitude) + as_float(magic)) - magic;
    const Bits finite = detail::select_less(magnitude, smallest_normal, subnormal, normal);
    const Bits signed_code = finite | (bits >> (31 - ExponentBits - MantissaBits) & sign);
    // A NaN has no sign, as on a GPU.
    return detail::select_less(infinity, magnitude, nan, signed_code);
  }

 private:
  static constexpr Bits infinity = 0x7f80'0000;
  static constexpr int shift = 23 - MantissaBits;
  static constexpr int bias = (1 << (ExponentBits - 1)) - 1;
  static constexpr Bits half_step = Bits{1} << (shift - 1);
  static constexpr Bits rebias = Bits(127 - bias) << 23;
  static constexpr Bits smallest_normal = Bits(128 - bias) << 23;
  static constexpr Bits magic = Bits(128 - bias + shift) << 23;

  CCL_HD static Bits as_bits(float f) { return detail::bit_cast<Bits>(f); }
  CCL_HD static float as_float(Bits b) { return detail::bit_cast<float>(b); }
};

using Float16Bits = SmallFloat<5, 10, 0x7c00, 0x7c00>;  // too large: infinity
using Float8E4m3Bits = SmallFloat<4, 3, 0x7e, 0x7f>;    // too large: 448; no infinity
using Float8E5m2Bits = SmallFloat<5, 2, 0x7b, 0x7c>;    // too large: 57344, as __NV_SATFINITE does

/// Brain float: the upper half of a float.
struct BFloat16Bits {
  using Bits = cuda::std::uint32_t;
  static constexpr Bits nan = 0x7fff;
  CCL_HD static float widen(Bits code) { return detail::bit_cast<float>(code << 16); }
  CCL_HD static Bits narrow(float value) {
    const Bits bits = detail::bit_cast<Bits>(value);
    const Bits rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    return detail::select_less(0x7f80'0000u, bits & 0x7fff'ffffu, nan, rounded);
  }
};

namespace detail {
/// Converts to float, to odd if inexact. Rounding the result once more gives the same as rounding
/// `value` itself.
CCL_HD float to_odd_float(double value) {
  using detail::bit_cast;
  const auto nearest = static_cast<float>(value);
  const auto bits = bit_cast<cuda::std::uint32_t>(nearest);
  const double back = nearest;
  if (back == value || value != value || (bits & 1) != 0) return nearest;
  const bool too_large = (back < 0 ? -back : back) > (value < 0 ? -value : value);
  return bit_cast<float>(too_large ? bits - 1 : bits + 1);
}
}  // namespace detail

}  // namespace ccl

CCL_ANY_SPACE_END
