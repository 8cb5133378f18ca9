#pragma once

#include <ccl/types/macros.hpp>

#include <cuda/std/cstdint>

CCL_ANY_SPACE_BEGIN

namespace ccl {

using Word = cuda::std::uint64_t;  // unit of data: 8 bytes
using Index = cuda::std::int64_t;  // count or offset in any unit

/// Unit that one lane moves in one access: 16 bytes.
struct alignas(16) Packet {
  Word word[2];
};

/// Words of a tile that one lane holds in registers.
template <int Words>
struct Fragment {
  static constexpr int words = Words;
  Word word[Words];
};

constexpr int words_per_line = 16;  // a line has 128 bytes

template <class A>
CCL_HD constexpr A div_up(A a, A b) {
  return (a + b - 1) / b;
}

}  // namespace ccl

CCL_ANY_SPACE_END
