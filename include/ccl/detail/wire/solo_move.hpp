#pragma once

#include <ccl/detail/base/bytes.hpp>
#include <ccl/detail/base/copies.hpp>
#include <ccl/detail/base/min_max.hpp>
#include <ccl/detail/lanes/host_memory.hpp>
#include <ccl/detail/numeric/host_reduction.hpp>

#include <cstring>

namespace ccl::detail {

/// True if a rank that only sends fills slots with `bytes` bytes past its caches. It is the slower
/// end. On an EPYC (Zen 3), one core fills slots for another with 8 to 10 GB/s and past the caches
/// with 13 to 17, and with 2 and 5 to 13 where the cores share no cache. If both ranks send, or the
/// receiver adds up, caches are faster (docs/validation/shared_memory.md).
inline bool goes_past_caches(Index bytes) {
  constexpr Index min_bytes = Index{16} << 10;
  // On a host with more ranks than cores, the receiver may share this core.
  return bytes >= min_bytes && !crowded.load(std::memory_order_relaxed);
}

/// `reduce_bulk` of a number of sources that is known at run time. Each has its own loop.
template <class R, bool Finish, int Most>
void reduce_sources(const R& reduction, void* out, const void* own, const void* const* parts,
                    int sources, Index n) {
  if constexpr (requires { R::max_sources; }) {
    static_assert(Most <= R::max_sources);
    const auto& loops = Finish ? reduction.loops->finished : reduction.loops->partial;
    loops[sources](reduction.reduction, out, own, parts, n);
  } else {
    static_assert(Most <= 7, "ccl: no loop adds up so many messages at once");
    const auto reduce = [&]<int Sources>() {
      if constexpr (Sources <= Most) {
        if (sources == Sources) reduce_own<R, Sources, Finish>(reduction, out, own, parts, n);
      }
    };
    reduce.template operator()<0>();
    reduce.template operator()<1>();
    reduce.template operator()<2>();
    reduce.template operator()<3>();
    reduce.template operator()<4>();
    reduce.template operator()<5>();
    reduce.template operator()<6>();
    reduce.template operator()<7>();
  }
}

/// Moves one slice of one CPU lane as plain elements. `out` (the user's memory, may be null) and
/// slots[0..slot_count) each get `own` (may be null) reduced with from[0..sources), in this order.
/// `out` may be one of the sources; memory may have any alignment.
///
/// `Finish` applies the epilogue. `Most`: maximum of `sources`. `past_caches`: what only moves goes
/// into the slots past the caches of this core.
template <class R, bool Finish, int Most>
void move_elements(const R& reduction, void* out, void* const* slots, int slot_count,
                   const void* own, const void* const* from, int sources, Index n,
                   bool past_caches = false) {
  constexpr Index size = sizeof(typename R::Type);
  constexpr Index block = max_of<Index>((Index{8} << 10) / size, 1);  // fits the L1 cache
  if constexpr (reduces<R>) {
    if (own != nullptr && (sources > 0 || Finish || changes_own(reduction))) {
      alignas(64) char scratch[block * size];
      for (Index at = 0; at < n; at += block) {
        const Index m = min_of(block, n - at);
        const auto moved = [at](auto* base) { return base + at * size; };
        char* const to = out != nullptr ? moved(static_cast<char*>(out)) : scratch;
        const void* parts[Most + 1] = {};
        for (int s = 0; s < sources; ++s) parts[s] = moved(static_cast<const char*>(from[s]));
        reduce_sources<R, Finish, Most>(reduction, to, moved(static_cast<const char*>(own)), parts,
                                        sources, m);
        for (int s = 0; s < slot_count; ++s) {
          copy_away(moved(static_cast<char*>(slots[s])), to, size_t(m * size));
        }
      }
      return;
    }
  }
  const char* const source = static_cast<const char*>(own != nullptr ? own : from[0]);
  const bool stores = out != nullptr && out != source;
  const Index step = int(stores) + slot_count > 1 ? block * size : n * size;
  for (Index at = 0; at < n * size; at += step) {
    const auto m = size_t(min_of(step, n * size - at));
    if (stores) copy_here(static_cast<char*>(out) + at, source + at, m);
    for (int s = 0; s < slot_count; ++s) {
      (past_caches ? copy_past_caches : copy_away)(static_cast<char*>(slots[s]) + at, source + at,
                                                   m);
    }
  }
}

/// Moves one slice of whole sums: `out` and slots[0..slot_count) each get from[0], finished.
template <class R>
void finish_elements(const R& reduction, void* out, void* const* slots, int slot_count,
                     const void* const* from, Index n) {
  const auto bytes = size_t(n * Index{sizeof(typename R::Type)});
  if constexpr (!requires { R::max_sources; }) {
    reduce_own<R, 1, true, false>(reduction, out, nullptr, from, n);
  } else if (reduction.loops->whole != nullptr) {
    reduction.loops->whole(reduction.reduction, out, nullptr, from, n);
  } else {
    copy_here(static_cast<char*>(out), static_cast<const char*>(from[0]), bytes);
  }
  for (int s = 0; s < slot_count; ++s) {
    copy_away(static_cast<char*>(slots[s]), static_cast<const char*>(out), bytes);
  }
}

}  // namespace ccl::detail
