#pragma once

#include <ccl/types/word.hpp>

#include <cuda/std/type_traits>

namespace ccl::detail {

/// Set of numbers below `Count`, one bit for each. A small set is one register.
template <int Count>
struct WordSet {
  using Part = cuda::std::conditional_t<(Count <= 32), unsigned, Word>;
  static constexpr int bits = 8 * int(sizeof(Part));
  static constexpr int parts = (Count + bits - 1) / bits;
  Part part[parts] = {};

  CCL_HD constexpr void insert(int n) { part[n / bits] |= Part{1} << n % bits; }
  CCL_HD constexpr bool contains(int n) const { return (part[n / bits] >> n % bits & 1) != 0; }
  CCL_HD constexpr bool empty() const {
    Part any = 0;
    CCL_UNROLL for (int i = 0; i < parts; ++i) any |= part[i];
    return any == 0;
  }
};

}  // namespace ccl::detail
