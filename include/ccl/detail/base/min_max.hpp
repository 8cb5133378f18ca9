#pragma once

#include <ccl/types/macros.hpp>

namespace ccl::detail {

// This header replaces <algorithm>, which costs each translation unit 8,600 lines.

template <class T>
CCL_HD constexpr T min_of(T a, T b) {
  return b < a ? b : a;
}
template <class T>
CCL_HD constexpr T max_of(T a, T b) {
  return a < b ? b : a;
}

}  // namespace ccl::detail
