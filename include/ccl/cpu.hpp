#pragma once

// What the instruction set gives a waiting CPU thread. Only this header asks which one it is.
#include <chrono>

namespace ccl {

/// A clock that costs next to nothing to read: about a nanosecond a tick. Host only.
inline unsigned long long cpu_ticks() {
#if defined(__x86_64__)
  return __builtin_ia32_rdtsc();
#else
  return static_cast<unsigned long long>(
      std::chrono::steady_clock::now().time_since_epoch().count());
#endif
}

/// Tells the core that its thread is polling. Host only.
inline void cpu_relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace ccl
