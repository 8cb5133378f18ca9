#pragma once

#include <ccl/bytes.hpp>
#include <ccl/types.hpp>

#include <cstring>

namespace ccl::detail {

/// The element loop of one CPU lane, over memory of any alignment: to[0..targets) each get own
/// (if not null) combined with from[0], from[1], ..., in this order. `Finish` applies the epilogue.
/// One pass over the sources; further targets are copied while they are in cache.
template <int Sources, bool Finish, class R>
void reduce_elements(const R& reduction, char* to, const char* own, const void* const* from,
                     Index n) {
  using T = typename R::Type;
  const char* in[Sources > 0 ? Sources : 1];
  for (int s = 0; s < Sources; ++s) in[s] = static_cast<const char*>(from[s]);
  for (Index i = 0; i < n; ++i) {
    T x;
    std::memcpy(&x, own + i * Index{sizeof(T)}, sizeof(T));
    auto sum = reduction.prepare(x);
    for (int s = 0; s < Sources; ++s) {
      std::memcpy(&x, in[s] + i * Index{sizeof(T)}, sizeof(T));
      sum = reduction.combine(sum, reduction.widen(x));
    }
    x = Finish ? reduction.finish(sum) : reduction.narrow(sum);
    std::memcpy(to + i * Index{sizeof(T)}, &x, sizeof(T));
  }
}

template <class R, bool Finish>
void move_elements(const R& reduction, void* const* to, int targets, const void* own,
                   const void* const* from, int sources, Index n) {
  // Blocks that stay in the first-level cache for the second target.
  const Index size = sizeof(typename R::Type);
  const Index block = (Index{8} << 10) / size + 1;
  for (Index at = 0; at < n; at += block) {
    const Index m = n - at < block ? n - at : block;
    const void* done = nullptr;
    const auto offset = [at, size](const void* p) {
      return static_cast<const char*>(p) + at * size;
    };
    if constexpr (reduces<R>) {
      if (own != nullptr && targets > 0) {
        char* const first = static_cast<char*>(to[0]) + at * size;
        const void* in[3]{};
        for (int s = 0; s < sources; ++s) in[s] = offset(from[s]);
        switch (sources) {
          case 0:
            reduce_elements<0, Finish>(reduction, first, offset(own), in, m);
            break;
          case 1:
            reduce_elements<1, Finish>(reduction, first, offset(own), in, m);
            break;
          case 2:
            reduce_elements<2, Finish>(reduction, first, offset(own), in, m);
            break;
          default:
            reduce_elements<3, Finish>(reduction, first, offset(own), in, m);
            break;
        }
        done = first;
      }
    }
    if (done == nullptr) done = offset(own != nullptr ? own : from[0]);
    for (int t = 0; t < targets; ++t) {
      char* const target = static_cast<char*>(to[t]) + at * size;
      if (target != done) std::memcpy(target, done, size_t(m * size));
    }
  }
}

}  // namespace ccl::detail
