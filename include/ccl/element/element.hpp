#pragma once

#include <ccl/detail/base/bit_cast.hpp>
#include <ccl/detail/base/ptx.hpp>
#include <ccl/element/data_type.hpp>
#include <ccl/element/small_float.hpp>
#include <ccl/types/macros.hpp>

#include <cuda/std/concepts>
#include <cuda/std/type_traits>
#include <nv/target>

#include <new>

CCL_ANY_SPACE_BEGIN

namespace ccl {

/// Layout of elements of `T` in words. A cell is the smallest run of words that one lane can reduce
/// alone. `get` and `put` move one element between a cell and a register; they access no memory if
/// `i` is a constant and the cell is in registers.
template <class T>
struct Cell {
  static_assert(!cuda::std::is_void_v<T>,
                "ccl: a buffer of void has no element type; cast the pointer to that of its "
                "elements, or to that of char if the operation only moves bytes");
  static_assert(cuda::std::is_void_v<T> || cuda::std::is_trivially_copyable_v<T>,
                "ccl: an element type must be trivially copyable (ranks exchange its bytes); "
                "reduce a plain struct of its data instead");

  /// Words of one cell.
  static constexpr int words_per_cell = sizeof(T) <= 8 ? 1 : int((sizeof(T) + 7) / 8);
  /// Elements of one cell.
  static constexpr int per_cell = sizeof(T) <= 8 ? int(8 / sizeof(T)) : 1;
  /// True if an array of elements and its cells have the same bytes.
  static constexpr bool packed = per_cell * sizeof(T) == 8 * words_per_cell;

  /// Returns element `i` of a cell.
  CCL_HD static T get(const Word* cell, int i) {
    if constexpr (has_bits) {
      return detail::bit_cast<T>(Bits(cell[0] >> bit_size * i));
    } else {
      Image image;
      __builtin_memcpy(image.byte, reinterpret_cast<const char*>(cell) + sizeof(T) * i, sizeof(T));
      return detail::bit_cast<T>(image);
    }
  }
  /// Writes element `i` and keeps the other elements of the cell.
  CCL_HD static void put(Word* cell, int i, const T& value) {
    if constexpr (has_bits) {
      constexpr Word mask = ~Word{0} >> (64 - bit_size);
      const Word bits = detail::bit_cast<Bits>(value);
      cell[0] = (cell[0] & ~(mask << bit_size * i)) | bits << bit_size * i;
    } else {
      __builtin_memcpy(reinterpret_cast<char*>(cell) + sizeof(T) * i, &value, sizeof(T));
    }
  }

 private:
  struct Image {
    char byte[sizeof(T)];
  };
  static constexpr int bit_size = 8 * int(sizeof(T));
  static constexpr bool has_bits =
      sizeof(T) == 1 || sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8;
  using Bits = cuda::std::conditional_t<
      sizeof(T) == 1, cuda::std::uint8_t,
      cuda::std::conditional_t<
          sizeof(T) == 2, cuda::std::uint16_t,
          cuda::std::conditional_t<sizeof(T) == 4, cuda::std::uint32_t, cuda::std::uint64_t>>>;
};

namespace detail {
/// Storage for a value that need not be default-constructible, as a variable or in an array.
template <class A>
union Slot {
  A value;
  CCL_HD Slot() {}  // NOLINT: a default constructor would be deleted
  CCL_HD void set(const A& a) { ::new (static_cast<void*>(&value)) A(a); }
};
}  // namespace detail

/// Type in which elements of `T` are reduced (`Accumulate`), and the conversions to and from it. A
/// program may specialize it for a storage type of its own: derive from `Cell<T>` and define
/// `Accumulate`, `widen` and `narrow`. `unpack` and `pack` convert a whole cell at once and are
/// optional.
template <class T>
struct Element : Cell<T> {
  using Accumulate = T;
  /// True if values of `T` are far from overflow when they are added one by one.
  static constexpr bool wide_range = true;
  CCL_HD static T widen(T value) { return value; }
  CCL_HD static T narrow(T value) { return value; }
};

namespace detail {
/// Layout and conversions of a float of 16 or 8 bits that is reduced in float. `Convert` converts
/// two at a time on a GPU.
template <class T, class Code, class Format, class Convert>
struct NarrowFloat : Cell<T> {
  using Accumulate = float;
  CCL_HD static float widen(T value) {
    const Code code = detail::bit_cast<Code>(value);
    NV_IF_ELSE_TARGET(NV_IS_DEVICE, (return Convert::widen2(code).low;),
                      (return Format::widen(code);))
  }
  /// Rounds to nearest, ties to even. A NaN stays a NaN.
  CCL_HD static T narrow(float value) {
    NV_IF_ELSE_TARGET(NV_IS_DEVICE, (return detail::bit_cast<T>(Code(Convert::narrow2(value, 0)));),
                      (return detail::bit_cast<T>(Code(Format::narrow(value)));))
  }
  CCL_HD static void unpack(const Word* cell, float* values) {
    CCL_UNROLL for (int i = 0; i < Cell<T>::per_cell; i += 2) {
      const auto pair = Pair(cell[0] >> bits * i);
      NV_IF_ELSE_TARGET(
          NV_IS_DEVICE,
          (const auto two = Convert::widen2(pair); values[i] = two.low; values[i + 1] = two.high;),
          (values[i] = Format::widen(Code(pair));
           values[i + 1] = Format::widen(Code(pair >> bits));))
    }
  }
  CCL_HD static void pack(Word* cell, const float* values) {
    Word word = 0;
    CCL_UNROLL for (int i = 0; i < Cell<T>::per_cell; i += 2) {
      Word pair;
      NV_IF_ELSE_TARGET(
          NV_IS_DEVICE, (pair = Convert::narrow2(values[i], values[i + 1]);),
          (pair = Format::narrow(values[i]) | Word{Format::narrow(values[i + 1])} << bits;))
      word |= pair << bits * i;
    }
    cell[0] = word;
  }

 private:
  static constexpr int bits = 8 * sizeof(Code);
  using Pair =
      cuda::std::conditional_t<sizeof(Code) == 1, cuda::std::uint16_t, cuda::std::uint32_t>;
};

struct TwoFloats {
  float low, high;
};
struct ConvertFloat16 {
  CCL_DEVICE static TwoFloats widen2(cuda::std::uint32_t pair);
  CCL_DEVICE static cuda::std::uint32_t narrow2(float low, float high);
};
struct ConvertBFloat16 {
  CCL_DEVICE static TwoFloats widen2(cuda::std::uint32_t pair);
  CCL_DEVICE static cuda::std::uint32_t narrow2(float low, float high);
  CCL_DEVICE static Word add4(Word a, Word b);
};
template <__nv_fp8_interpretation_t Kind>
struct ConvertFloat8 {
  CCL_DEVICE static TwoFloats widen2(cuda::std::uint16_t pair);
  CCL_DEVICE static cuda::std::uint16_t narrow2(float low, float high);
};

#if defined(__CUDACC__)
CCL_DEVICE TwoFloats ConvertFloat16::widen2(cuda::std::uint32_t pair) {
  return {ptx::widen_f16(cuda::std::uint16_t(pair)),
          ptx::widen_f16(cuda::std::uint16_t(pair >> 16))};
}
CCL_DEVICE cuda::std::uint32_t ConvertFloat16::narrow2(float low, float high) {
  return ptx::round_f16x2(low, high);
}
CCL_DEVICE TwoFloats ConvertBFloat16::widen2(cuda::std::uint32_t pair) {
  return {BFloat16Bits::widen(pair & 0xffff), detail::bit_cast<float>(pair & 0xffff'0000u)};
}
CCL_DEVICE cuda::std::uint32_t ConvertBFloat16::narrow2(float low, float high) {
  NV_IF_ELSE_TARGET(
      NV_PROVIDES_SM_80, (return ptx::round_bf16x2(low, high);),
      (return BFloat16Bits::narrow(low) | cuda::std::uint32_t{BFloat16Bits::narrow(high)} << 16;))
}
CCL_DEVICE Word ConvertBFloat16::add4(Word a, Word b) {
  return ptx::add_bf16x2(cuda::std::uint32_t(a), cuda::std::uint32_t(b)) |
         Word{ptx::add_bf16x2(cuda::std::uint32_t(a >> 32), cuda::std::uint32_t(b >> 32))} << 32;
}
// These two functions select the GPUs that convert in one instruction.
template <__nv_fp8_interpretation_t Kind>
CCL_DEVICE TwoFloats ConvertFloat8<Kind>::widen2(cuda::std::uint16_t pair) {
  const __half2_raw two = __nv_cvt_fp8x2_to_halfraw2(pair, Kind);
  return {ptx::widen_f16(two.x), ptx::widen_f16(two.y)};
}
template <__nv_fp8_interpretation_t Kind>
CCL_DEVICE cuda::std::uint16_t ConvertFloat8<Kind>::narrow2(float low, float high) {
  return __nv_cvt_float2_to_fp8x2(float2{low, high}, __NV_SATFINITE, Kind);
}
#endif
}  // namespace detail

template <>
struct Element<float16>
    : detail::NarrowFloat<float16, cuda::std::uint16_t, Float16Bits, detail::ConvertFloat16> {
  static constexpr bool wide_range = false;
};
template <>
struct Element<bfloat16>
    : detail::NarrowFloat<bfloat16, cuda::std::uint16_t, BFloat16Bits, detail::ConvertBFloat16> {
  static constexpr bool wide_range = true;
  /// Returns the sums of the elements of two cells, each rounded once. The result equals a sum in
  /// float, because float holds every sum of two values that is near a tie.
  CCL_HD static Word add_packed(Word a, Word b) {
    NV_IF_ELSE_TARGET(NV_PROVIDES_SM_80, (return detail::ConvertBFloat16::add4(a, b);), ({
                        float of_a[4], of_b[4];
                        unpack(&a, of_a);
                        unpack(&b, of_b);
                        CCL_UNROLL for (int i = 0; i < 4; ++i) of_a[i] += of_b[i];
                        Word sum;
                        pack(&sum, of_a);
                        return sum;
                      }))
  }
};
/// Layout and conversions of float8_e4m3. A value too large becomes the largest finite one.
template <>
struct Element<float8_e4m3> : detail::NarrowFloat<float8_e4m3, cuda::std::uint8_t, Float8E4m3Bits,
                                                  detail::ConvertFloat8<__NV_E4M3>> {
  static constexpr bool wide_range = false;
};
/// Layout and conversions of float8_e5m2. A value too large becomes the largest finite one.
template <>
struct Element<float8_e5m2> : detail::NarrowFloat<float8_e5m2, cuda::std::uint8_t, Float8E5m2Bits,
                                                  detail::ConvertFloat8<__NV_E5M2>> {
  static constexpr bool wide_range = false;
};

/// Type in which elements of `T` are reduced by default.
template <class T>
using accumulate_t = typename Element<T>::Accumulate;

namespace detail {
template <class E, class T>
concept StatesCellShape = E::words_per_cell >= 1 && E::per_cell >= 1;
template <class E, class T>
concept MovesElements = requires(const Word* from, Word* to, int i, T value) {
  { E::get(from, i) } -> cuda::std::same_as<T>;
  E::put(to, i, value);
};
template <class E, class T>
concept WidensAndNarrows = requires(T value, typename E::Accumulate wide) {
  { E::widen(value) } -> cuda::std::same_as<typename E::Accumulate>;
  { E::narrow(wide) } -> cuda::std::same_as<T>;
};
template <class E>
concept ConvertsWholeCells = requires(const Word* from, Word* to, typename E::Accumulate* values) {
  E::unpack(from, values);
  E::pack(to, values);
};
}  // namespace detail

/// True if `E` has the members that `Element<T>` must provide. It applies to specializations too.
template <class E, class T>
concept ElementOf = cuda::std::is_trivially_copyable_v<T> && detail::StatesCellShape<E, T> &&
                    detail::MovesElements<E, T> && detail::WidensAndNarrows<E, T>;

}  // namespace ccl

CCL_ANY_SPACE_END
