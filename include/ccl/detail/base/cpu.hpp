#pragma once

// Clocks and pauses of a core.
#include <time.h>

namespace ccl::detail {

/// Returns nanoseconds of the steady clock. Host only.
inline unsigned long long steady_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<unsigned long long>(now.tv_sec) * 1'000'000'000ull +
         static_cast<unsigned long long>(now.tv_nsec);
}

/// Returns ticks of a clock that is cheap to read. A tick is about a nanosecond. Host only.
inline unsigned long long cpu_ticks() {
#if defined(__x86_64__)
  return __builtin_ia32_rdtsc();
#else
  return steady_ns();
#endif
}

/// Hints to the core that its thread is polling. Host only.
inline void cpu_relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace ccl::detail
