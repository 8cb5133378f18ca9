#pragma once

// Limits in wall time that hold on a busy machine, too.
#include <string>

namespace ccl::test {

/// Runs `run(limit_s)` with longer and longer limits until it has no problem, and returns the last
/// problem. For cases that must complete within a short limit beside something that exceeds it: the
/// excess grows with the limit, so that only a machine that is too slow for a limit needs the next.
template <class Run>
std::string with_growing_limit(double first_s, Run&& run) {
  std::string problem;
  for (double limit_s = first_s; limit_s <= 64 * first_s; limit_s *= 4) {
    problem = run(limit_s);
    if (problem.empty()) break;
  }
  return problem;
}

}  // namespace ccl::test
