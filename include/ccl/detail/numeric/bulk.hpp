#pragma once

#include <ccl/detail/base/min_max.hpp>
#include <ccl/detail/numeric/narrow_floats.hpp>
#include <ccl/detail/numeric/reduction.hpp>

#include <cstring>

namespace ccl::detail {
/// An element at any address.
template <class T>
T load_unaligned(const char* at) {
  Slot<T> slot;
  std::memcpy(static_cast<void*>(&slot), at, sizeof(T));
  return slot.value;
}
template <class T>
void store_unaligned(char* at, const T& value) {
  std::memcpy(at, static_cast<const void*>(&value), sizeof(T));
}

CCL_INDEPENDENT_BEGIN
template <class R, int Sources, bool Finish, bool Own>
CCL_INDEPENDENT_APART void reduce_loop(const R& reduction, char* out, const char* own,
                                       const char* const* sources, Index count) {
  using T = typename R::Type;
  using Acc = typename R::Accumulate;
  constexpr Index size = sizeof(T);
  const R r = reduction.load();
  const char* from[Sources + 1] = {};
  for (int s = 0; s < Sources; ++s) from[s] = sources[s];
  // The output may be an input, but then in the same place: no element depends on another.
  CCL_INDEPENDENT
  for (Index i = 0; i < count; ++i) {
    Acc acc = Own ? r.prepare(load_unaligned<T>(own + i * size))
                  : r.widen(load_unaligned<T>(from[0] + i * size));
    for (int s = Own ? 0 : 1; s < Sources; ++s) {
      acc = r.combine(acc, r.widen(load_unaligned<T>(from[s] + i * size)));
    }
    store_unaligned(out + i * size, Finish ? r.finish(acc) : r.narrow(acc));
  }
}
CCL_INDEPENDENT_END

/// The same by way of floats in the first cache, since CPUs convert runs fast and elements slowly.
template <class R, int Sources, bool Finish, bool Own>
void reduce_runs(const R& reduction, char* out, const char* own, const char* const* sources,
                 Index count) {
  using T = typename R::Type;
  constexpr Index size = sizeof(T), run = 1024;
  const R r = reduction.load();
  alignas(64) float sum[run], next[run];
  for (Index at = 0; at < count; at += run) {
    const Index n = min_of(run, count - at);
    widen_run<T>((Own ? own : sources[0]) + at * size, sum, n);
    if constexpr (Own) {
      for (Index i = 0; i < n; ++i) sum[i] = r.scaled(sum[i]);
    }
    for (int s = Own ? 0 : 1; s < Sources; ++s) {
      widen_run<T>(sources[s] + at * size, next, n);
      for (Index i = 0; i < n; ++i) sum[i] = r.combine(sum[i], next[i]);
    }
    if constexpr (Finish) {
      for (Index i = 0; i < n; ++i) sum[i] = r.complete(sum[i]);
    }
    narrow_run<T>(sum, out + at * size, n);
  }
}

/// `reduce_bulk` where the compiler knows whether there is own data.
template <class R, int Sources, bool Finish, bool Own = true>
void reduce_own(const R& reduction, void* out, const void* own, const void* const* sources,
                Index count) {
  auto* const to = static_cast<char*>(out);
  auto* const mine = static_cast<const char*>(own);
  const char* from[Sources + 1] = {};
  for (int s = 0; s < Sources; ++s) from[s] = static_cast<const char*>(sources[s]);
  if constexpr (is_narrow_float<typename R::Type> &&
                cuda::std::is_same_v<typename R::Accumulate, float>) {
    detail::reduce_runs<R, Sources, Finish, Own>(reduction, to, mine, from, count);
  } else {
    detail::reduce_loop<R, Sources, Finish, Own>(reduction, to, mine, from, count);
  }
}

/// One CPU thread reduces `count` elements of plain memory, aligned or not:
///   out[i] = own[i] (+) sources[0][i] (+) sources[1][i] ...
/// in this order, rounded once; the whole result if `Finish`, else a partial one. `own` is this
/// rank's data and may be null where there is a source; `sources` hold what other ranks prepared.
/// `out` may be the same memory as an input; it may not overlap one otherwise.
template <class R, int Sources, bool Finish>
void reduce_bulk(const R& reduction, void* out, const void* own, const void* const* sources,
                 Index count) {
  static_assert(Sources >= 0);
  if (own != nullptr) {
    reduce_own<R, Sources, Finish>(reduction, out, own, sources, count);
  } else if constexpr (Sources > 0) {
    reduce_own<R, Sources, Finish, false>(reduction, out, own, sources, count);
  }
}

}  // namespace ccl::detail
