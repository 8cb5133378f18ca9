#pragma once

#include <ccl/detail/base/bytes.hpp>
#include <ccl/detail/numeric/bulk.hpp>
#include <ccl/detail/numeric/network_step.hpp>
#include <ccl/types/word.hpp>

namespace ccl::detail {

/// Element of `Size` bytes, of any type.
template <int Size>
struct PlainElement {
  unsigned char bytes[Size];
};

/// Loops of a reduction over elements in memory, with 0 to `Most` sources.
template <int Most>
struct HostLoops {
  using Loop = void (*)(const void* reduction, void* out, const void* own,
                        const void* const* sources, Index count);
  Loop partial[Most + 1];
  Loop finished[Most + 1];
  Loop whole = nullptr;  // finishes one source, a whole sum; null: that changes nothing
};

/// Reduction of elements of `Size` bytes on CPU lanes, whose element type and functor only its
/// loops know. The compiled runtime has the lanes of ccl's algorithms for it, so a program contains
/// no more than the loops. Refers to a reduction that outlives it.
template <int Size, int Most>
struct HostReduction {
  using Type = PlainElement<Size>;
  using Accumulate = Type;
  static constexpr bool prepares = true;   // perhaps: see `changes_own`
  static constexpr bool completes = true;  // perhaps: see `HostLoops::whole`
  static constexpr int max_sources = Most;

  void load_here() {}

  const void* reduction = nullptr;
  const HostLoops<Most>* loops = nullptr;
  bool changes_own = false;
  Word network_tag = 0;  // see `NetworkStep`
};

/// True if R changes a rank's own data before it is sent.
template <class R>
constexpr bool changes_own(const R& reduction) {
  if constexpr (requires { reduction.changes_own; }) return reduction.changes_own;
  return prepares<R>();
}

template <class R, int Sources, bool Finish>
void host_loop(const void* reduction, void* out, const void* own, const void* const* sources,
               Index count) {
  reduce_own<R, Sources, Finish>(*static_cast<const R*>(reduction), out, own, sources, count);
}
template <class R>
void finish_loop(const void* reduction, void* out, const void*, const void* const* sources,
                 Index count) {
  reduce_own<R, 1, true, false>(*static_cast<const R*>(reduction), out, nullptr, sources, count);
}
/// Loops of `R`. One source at most means exactly one, except where own data is only prepared.
template <class R, int Most>
inline constexpr HostLoops<Most> host_loops = [] {
  HostLoops<Most> loops{};
  if constexpr (R::prepares) loops.partial[0] = host_loop<R, 0, false>;
  if constexpr (Most > 1) loops.finished[0] = host_loop<R, 0, true>;
  const auto add = [&]<int Sources>() {
    if constexpr (Sources <= Most) {
      loops.partial[Sources] = host_loop<R, Sources, false>;
      loops.finished[Sources] = host_loop<R, Sources, true>;
    }
  };
  add.template operator()<1>();
  add.template operator()<2>();
  add.template operator()<3>();
  add.template operator()<4>();
  static_assert(Most <= 4, "ccl: no loop adds up so many messages at once");
  if constexpr (R::completes) loops.whole = finish_loop<R>;
  return loops;
}();
template <int Most, class R>
HostReduction<int(sizeof(typename R::Type)), Most> host_reduction(const R& reduction) {
  return {&reduction, &host_loops<R, Most>, R::prepares, network_tag<R>};
}

}  // namespace ccl::detail
