#include <ccl/detail/numeric/narrow_floats.hpp>
#include <ccl/element/small_float.hpp>

#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#  include <immintrin.h>
#endif

namespace ccl {
namespace {

template <class T>
struct FormatOf;
template <>
struct FormatOf<float16> {
  using Bits = Float16Bits;
  using Code = std::uint16_t;
};
template <>
struct FormatOf<bfloat16> {
  using Bits = BFloat16Bits;
  using Code = std::uint16_t;
};
template <>
struct FormatOf<float8_e4m3> {
  using Bits = Float8E4m3Bits;
  using Code = std::uint8_t;
};
template <>
struct FormatOf<float8_e5m2> {
  using Bits = Float8E5m2Bits;
  using Code = std::uint8_t;
};

// Inlined into one function per instruction set: the compiler vectorizes them for each.
template <class T>
[[gnu::always_inline]] inline void widen_loop(const char* __restrict from, float* __restrict to,
                                              Index count) {
  using Code = typename FormatOf<T>::Code;
  for (Index i = 0; i < count; ++i) {
    Code code;
    std::memcpy(&code, from + i * Index{sizeof(Code)}, sizeof(Code));
    to[i] = FormatOf<T>::Bits::widen(code);
  }
}
template <class T>
[[gnu::always_inline]] inline void narrow_loop(const float* __restrict from, char* __restrict to,
                                               Index count) {
  using Code = typename FormatOf<T>::Code;
  for (Index i = 0; i < count; ++i) {
    const auto code = static_cast<Code>(FormatOf<T>::Bits::narrow(from[i]));
    std::memcpy(to + i * Index{sizeof(Code)}, &code, sizeof(Code));
  }
}

#if defined(__x86_64__)
bool has_avx2() {
  static const bool has = __builtin_cpu_supports("avx2");  // every CPU that has it has f16c
  return has;
}
/// Eight halves with the values of eight elements, those of e4m3 divided by 256.
template <class T>
[[gnu::target("avx2,f16c")]] inline __m128i load_halves(const char* from) {
  if constexpr (sizeof(T) == 2) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  } else {
    const __m128i codes =
        _mm_cvtepu8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
    const __m128i high = _mm_slli_epi16(codes, 8);
    if constexpr (std::is_same_v<T, float8_e5m2>) return high;
    const __m128i sign = _mm_and_si128(high, _mm_set1_epi16(short(0x8000)));
    const __m128i magnitude = _mm_and_si128(codes, _mm_set1_epi16(0x7f));
    const __m128i nan = _mm_cmpeq_epi16(magnitude, _mm_set1_epi16(0x7f));
    return _mm_or_si128(_mm_or_si128(sign, nan), _mm_slli_epi16(magnitude, 7));
  }
}
template <class T>
[[gnu::target("avx2,f16c")]] void widen_avx2(const char* from, float* to, Index count) {
  Index i = 0;
  if constexpr (!std::is_same_v<T, bfloat16>) {
    for (; i + 8 <= count; i += 8) {
      __m256 floats = _mm256_cvtph_ps(load_halves<T>(from + i * Index{sizeof(T)}));
      if constexpr (std::is_same_v<T, float8_e4m3>) {
        floats = _mm256_mul_ps(floats, _mm256_set1_ps(256));
      }
      _mm256_storeu_ps(to + i, floats);
    }
  }
  widen_loop<T>(from + i * Index{sizeof(T)}, to + i, count - i);
}
template <class T>
[[gnu::target("avx2,f16c")]] void narrow_avx2(const float* from, char* to, Index count) {
  Index i = 0;
  if constexpr (std::is_same_v<T, float16>) {
    for (; i + 8 <= count; i += 8) {
      const __m256 floats = _mm256_loadu_ps(from + i);
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 2 * i),
                       _mm256_cvtps_ph(floats, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    }
  }
  narrow_loop<T>(from + i, to + i * Index{sizeof(T)}, count - i);
}
#endif

}  // namespace

template <class T>
void detail::widen_run(const void* from, float* to, Index count) {
#if defined(__x86_64__)
  if (has_avx2()) return widen_avx2<T>(static_cast<const char*>(from), to, count);
#endif
  widen_loop<T>(static_cast<const char*>(from), to, count);
}
template <class T>
void detail::narrow_run(const float* from, void* to, Index count) {
#if defined(__x86_64__)
  if (has_avx2()) return narrow_avx2<T>(from, static_cast<char*>(to), count);
#endif
  narrow_loop<T>(from, static_cast<char*>(to), count);
}

template void detail::widen_run<float16>(const void*, float*, Index);
template void detail::widen_run<bfloat16>(const void*, float*, Index);
template void detail::widen_run<float8_e4m3>(const void*, float*, Index);
template void detail::widen_run<float8_e5m2>(const void*, float*, Index);
template void detail::narrow_run<float16>(const float*, void*, Index);
template void detail::narrow_run<bfloat16>(const float*, void*, Index);
template void detail::narrow_run<float8_e4m3>(const float*, void*, Index);
template void detail::narrow_run<float8_e5m2>(const float*, void*, Index);

}  // namespace ccl
