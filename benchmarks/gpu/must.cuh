#pragma once

// Ends a benchmark if CUDA or ccl reports an error.
#include <ccl/types/result.hpp>

#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <type_traits>
#include <utility>

namespace ccl::bench {

/// Prints the error and ends the program. Other threads may still run, so that nothing is
/// destroyed.
[[noreturn]] inline void give_up(int line, const char* what, const char* why) {
  std::fprintf(stderr, "line %d: %s%s\n", line, what, why);
  std::fflush(stdout);
  std::_Exit(1);
}

inline void must(cudaError_t e, const char* what, int line) {
  if (e != cudaSuccess) give_up(line, what, cudaGetErrorString(e));
}
#define MUST(call) ::ccl::bench::must((call), #call ": ", __LINE__)

/// Returns the value of a result.
template <class T>
T must(Result<T> r, int line = __builtin_LINE()) {
  if (!r) give_up(line, "", r.error().message().c_str());
  if constexpr (!std::is_void_v<T>) return *std::move(r);
}

}  // namespace ccl::bench
