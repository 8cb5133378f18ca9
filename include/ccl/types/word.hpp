#pragma once

#include <ccl/types/macros.hpp>

#include <cuda/std/cstdint>

namespace ccl {

using Word = cuda::std::uint64_t;  // 8 bytes: the unit of data
using Index = cuda::std::int64_t;  // counts and offsets of anything

/// 16 bytes: the unit that one lane moves at once.
struct alignas(16) Packet {
  Word word[2];
};

/// What one lane holds of a tile: plain words in registers.
template <int Words>
struct Fragment {
  static constexpr int words = Words;
  Word word[Words];
};

constexpr int words_per_line = 16;  // a line is 128 bytes

template <class A>
CCL_HD constexpr A div_up(A a, A b) {
  return (a + b - 1) / b;
}

}  // namespace ccl
