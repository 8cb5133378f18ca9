#pragma once

#include <chrono>
#include <thread>

#include "fuzz/fuzz.hpp"
#include <dirent.h>
#include <unistd.h>

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

/// Prints what each descriptor of this process is.
inline void print_descriptors() {
  DIR* const all = ::opendir("/proc/self/fd");
  if (all == nullptr) return;
  while (const dirent* const entry = ::readdir(all)) {
    char target[200] = {};
    if (::readlinkat(::dirfd(all), entry->d_name, target, sizeof target - 1) > 0) {
      std::fprintf(stderr, "descriptor %s: %s\n", entry->d_name, target);
    }
  }
  ::closedir(all);
}

/// Ends the program if not `wanted` descriptors are open after 10 s. Servers close the sockets of
/// their callers a moment after they have answered.
inline void demand_descriptors(int wanted) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds{10};
  while (open_descriptors() != wanted) {
    if (std::chrono::steady_clock::now() > end) {
      print_descriptors();
      std::fprintf(stderr, "%d descriptors are open, %d at first\n", open_descriptors(), wanted);
      demand(false, "a descriptor stays open");
    }
    std::this_thread::yield();
  }
}

}  // namespace ccl::fuzz
