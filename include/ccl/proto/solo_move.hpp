#pragma once

#include <ccl/bulk.hpp>
#include <ccl/bytes.hpp>

#include <algorithm>
#include <cstring>

namespace ccl::detail {

/// One slice of one CPU lane, as plain elements: to[0..targets) each get own (if not null) reduced
/// with from[0..sources), in this order. `Finish` applies the epilogue. Memory of any alignment; a
/// target may be one of the sources. `Most`: sources, at most; each number is a loop of its own.
template <class R, bool Finish, int Most>
void move_elements(const R& reduction, void* const* to, int targets, const void* own,
                   const void* const* from, int sources, Index n) {
  const Index size = sizeof(typename R::Type);
  if constexpr (reduces<R>) {
    if (own != nullptr && targets > 0) {
      void* const second = targets > 1 ? to[1] : nullptr;
      const auto reduce = [&]<int Sources>() {
        reduce_bulk<R, Sources, Finish>(reduction, to[0], second, own, from, n);
      };
      if constexpr (Most >= 3) {
        if (sources == 3) reduce.template operator()<3>();
        if (sources == 2) reduce.template operator()<2>();
      }
      if constexpr (Most >= 1) {
        if (sources == 1) reduce.template operator()<1>();
      }
      if (sources == 0) reduce.template operator()<0>();
      for (int t = 2; t < targets; ++t) std::memcpy(to[t], to[0], size_t(n * size));
      return;
    }
  }
  // Blocks that stay in the first cache for the second target.
  const char* const source = static_cast<const char*>(own != nullptr ? own : from[0]);
  const Index block = targets > 1 ? Index{8} << 10 : n * size;
  for (Index at = 0; at < n * size; at += block) {
    const Index m = std::min(block, n * size - at);
    for (int t = 0; t < targets; ++t) {
      char* const target = static_cast<char*>(to[t]) + at;
      if (target != source + at) std::memcpy(target, source + at, size_t(m));
    }
  }
}

}  // namespace ccl::detail
