#pragma once

#include <chrono>
#include <thread>

#include "fuzz/fuzz.hpp"
#include <dirent.h>

namespace ccl::fuzz {

/// Descriptors that this process has open, with a few more that do not change.
inline int open_descriptors() {
  DIR* const all = ::opendir("/proc/self/fd");
  demand(all != nullptr, "/proc/self/fd");
  int count = 0;
  while (::readdir(all) != nullptr) ++count;
  ::closedir(all);
  return count;
}

/// Returns false if not `wanted` descriptors are open after 10 s. Servers close the sockets of
/// their callers a moment after they have answered.
inline bool comes_back_to(int wanted) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds{10};
  while (open_descriptors() != wanted) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::yield();
  }
  return true;
}

}  // namespace ccl::fuzz
