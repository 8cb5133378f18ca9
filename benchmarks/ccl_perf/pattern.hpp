#pragma once

// Data that ranks send, and the expected results. They depend only on the position, so that CPU and
// GPU fill and check alike.
#include <ccl/element/data_type.hpp>
#include <ccl/element/element.hpp>

#include <cuda/std/cstdint>
#include <cuda/std/type_traits>

#include "redop.hpp"

namespace ccl::perf {

CCL_HD cuda::std::uint64_t mix_wide(cuda::std::uint64_t x) {
  x = (x + 0x9e37'79b9'7f4a'7c15) * 0xbf58'476d'1ce4'e5b9;
  x = (x ^ (x >> 29)) * 0x94d0'49bb'1331'11eb;
  return x ^ (x >> 32);
}
CCL_HD cuda::std::uint32_t mix(cuda::std::uint64_t x) {
  return cuda::std::uint32_t(mix_wide(x) >> 33);
}

/// Returns the bound below which whole numbers are exact in T.
template <class T>
CCL_HD constexpr int exact_below() {
  using cuda::std::is_same_v;
  if constexpr (is_same_v<T, cuda::std::int8_t>) return 127;
  if constexpr (is_same_v<T, cuda::std::uint8_t>) return 255;
  if constexpr (is_same_v<T, float8_e5m2>) return 8;
  if constexpr (is_same_v<T, float8_e4m3>) return 16;
  if constexpr (is_same_v<T, bfloat16>) return 256;
  if constexpr (is_same_v<T, float16>) return 2048;
  return 1 << 20;
}

/// Returns a rank's element as a small whole number. Every order of reduction gives the same bits.
template <class T>
CCL_HD cuda::std::int64_t sent_value(RedOp redop, int ranks, int rank, Index i) {
  using cuda::std::uint64_t;
  const auto hash = mix(uint64_t(i));
  if (redop == RedOp::prod) {  // at most two ranks have a factor, so the product stays exact
    const bool first = int(hash % unsigned(ranks)) == rank;
    const bool second = int((hash >> 12) % unsigned(ranks)) == rank;
    return (first ? 1 + int((hash >> 8) % 3) : 1) * (second ? 2 : 1);
  }
  if (redop == RedOp::min || redop == RedOp::max || redop == RedOp::own) {
    return 1 + mix(uint64_t(i) * 64 + uint64_t(rank)) % 7;
  }
  // The sum, doubled by mulsum, stays exact. With very many ranks only some contribute.
  const int limit = exact_below<T>() / (redop == RedOp::mulsum ? 2 : 1);
  if (rank >= limit) return 0;
  const int each = limit / (ranks < limit ? ranks : limit);
  return (hash + unsigned(rank) * 7u) % unsigned((each < 1000 ? each : 1000) + 1);
}

template <class T>
CCL_HD T from_whole(cuda::std::int64_t n) {
  if constexpr (cuda::std::is_integral_v<T>) {
    return T(n);
  } else {
    return Element<T>::narrow(accumulate_t<T>(n));
  }
}

/// Returns the reduction of all ranks' elements at `i`.
template <class T>
CCL_HD T reduced_value(RedOp redop, int ranks, Index i) {
  cuda::std::int64_t sum = 0, product = 1, least = sent_value<T>(redop, ranks, 0, i);
  cuda::std::int64_t greatest = least;
  for (int r = 0; r < ranks; ++r) {
    const auto v = sent_value<T>(redop, ranks, r, i);
    sum += v;
    product *= v;
    least = v < least ? v : least;
    greatest = v > greatest ? v : greatest;
  }
  switch (redop) {
    case RedOp::prod:
      return from_whole<T>(product);
    case RedOp::min:
      return from_whole<T>(least);
    case RedOp::max:
    case RedOp::own:
      return from_whole<T>(greatest);
    case RedOp::mulsum:
      return from_whole<T>(2 * sum);
    case RedOp::avg:
      if constexpr (cuda::std::is_integral_v<T>) {
        return T(sum / ranks);
      } else {
        using Wide = accumulate_t<T>;
        return Element<T>::narrow(Wide(sum) / Wide(ranks));
      }
    case RedOp::sum:
      break;
  }
  return from_whole<T>(sum);
}

/// Returns the word with this number in the send buffer of rank `from`. Moved data has arbitrary
/// bits.
CCL_HD Word moved_word(int from, Index number) {
  return mix_wide(cuda::std::uint64_t(number) * 1024 + cuda::std::uint64_t(from));
}
/// Returns the element of 1, 2, 4 or 8 bytes at byte `at`, a multiple of its size.
template <class Bits>
CCL_HD Bits moved_element(int from, Index at) {
  return Bits(moved_word(from, at >> 3) >> (8 * (at & 7)));
}

/// Calls `f` with the unsigned integer of that size.
template <class F>
decltype(auto) with_bits(Index element_bytes, F&& f) {
  switch (element_bytes) {
    case 1:
      return f(TypeTag<cuda::std::uint8_t>{});
    case 2:
      return f(TypeTag<cuda::std::uint16_t>{});
    case 4:
      return f(TypeTag<cuda::std::uint32_t>{});
    default:
      return f(TypeTag<cuda::std::uint64_t>{});
  }
}

}  // namespace ccl::perf
