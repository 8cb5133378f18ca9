#pragma once

#include <algorithm>
#include <vector>

namespace ccl::perf {

/// Returns the value in the middle, or the mean of the two. `values` is not empty.
inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

}  // namespace ccl::perf
