#pragma once

// Allocations that a call makes. Exactly one source of the program includes it.
#include "support/replaced_new.hpp"

namespace ccl::test {

inline thread_local bool counts_allocations = false;
inline thread_local int allocations = 0;

/// Counts the allocations of this program from here on.
[[maybe_unused]] inline const bool hooked = [] {
  allocation_hook = [] {
    if (counts_allocations) ++allocations;
    return true;
  };
  return true;
}();

/// Runs `call` and returns what it returns. Afterwards `allocations` has those of this thread.
template <class Call>
auto count_allocations(const Call& call) {
  allocations = 0;
  counts_allocations = true;
  auto result = call();
  counts_allocations = false;
  return result;
}

}  // namespace ccl::test
