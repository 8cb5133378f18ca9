#pragma once

#include <ccl/types/macros.hpp>
#include <ccl/types/word.hpp>

#include <cuda/std/type_traits>

CCL_ANY_SPACE_BEGIN

namespace ccl::detail {

/// Set of numbers below `Count`, one bit for each. A small set is one register.
template <int Count>
struct WordSet {
  using Part = cuda::std::conditional_t<(Count <= 32), unsigned, Word>;
  static constexpr int bits = 8 * int(sizeof(Part));
  static constexpr int parts = (Count + bits - 1) / bits;
  Part part[parts] = {};

  // No index is known at run time only: a lane would keep the set in local memory.
  CCL_HD constexpr void insert(int n) {
    CCL_UNROLL for (int i = 0; i < parts; ++i) {
      if (parts == 1 || n / bits == i) part[i] |= Part{1} << bit_of(n);
    }
  }
  CCL_HD constexpr bool contains(int n) const {
    Part of_n = 0;
    CCL_UNROLL for (int i = 0; i < parts; ++i) {
      if (parts == 1 || n / bits == i) of_n = part[i];
    }
    return (of_n >> bit_of(n) & 1) != 0;
  }
  CCL_HD constexpr bool empty() const {
    Part any = 0;
    CCL_UNROLL for (int i = 0; i < parts; ++i) any |= part[i];
    return any == 0;
  }

 private:
  CCL_HD static constexpr int bit_of(int n) { return parts == 1 ? n : n % bits; }
};

}  // namespace ccl::detail

CCL_ANY_SPACE_END
