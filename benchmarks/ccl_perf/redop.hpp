#pragma once

#include <string_view>

namespace ccl::perf {

/// Reductions by name. `mulsum` multiplies by 2. `own` is a functor of this program that returns
/// the larger value, like `max`.
enum class RedOp : int { sum, prod, min, max, avg, mulsum, own };
inline constexpr int redop_count = 7;
inline constexpr std::string_view redop_names[redop_count] = {"sum", "prod",   "min", "max",
                                                              "avg", "mulsum", "own"};

}  // namespace ccl::perf
