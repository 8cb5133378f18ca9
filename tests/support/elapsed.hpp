#pragma once

#include <chrono>

namespace ccl::test {

/// Seconds since `begin`, by the steady clock.
inline double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace ccl::test
