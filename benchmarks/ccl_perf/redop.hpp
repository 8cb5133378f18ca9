#pragma once

#include <string_view>

namespace ccl::perf {

/// The reductions by name. `mulsum` multiplies by 2.
enum class RedOp : int { sum, prod, min, max, avg, mulsum };
inline constexpr int redop_count = 6;
inline constexpr std::string_view redop_names[redop_count] = {"sum", "prod", "min",
                                                              "max", "avg",  "mulsum"};

}  // namespace ccl::perf
