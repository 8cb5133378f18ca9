#pragma once

#include <ccl/detail/launch/call_arguments.hpp>
#include <ccl/detail/numeric/host_reduction.hpp>
#include <ccl/detail/runtime/connections.hpp>
#include <ccl/types/operations.hpp>

namespace ccl {
struct Bruck;
struct CollNetChain;
struct CollNetDirect;
struct Doubling;
struct Halving;
struct OneTree;
struct OrderedChain;
struct OrderedTree;
struct Pat;
struct Ring;
struct Simple;
struct Tree;
}  // namespace ccl

namespace ccl::detail {

/// Algorithm that CPU lanes run in place of `Algo`, which differs only in its kernels.
template <class Algo>
struct OnCpuLanes {
  using Type = Algo;
};
template <class Algo>
  requires requires { typename Algo::OnCpus; }
struct OnCpuLanes<Algo> {
  using Type = typename Algo::OnCpus;
};
template <class Algo>
using on_cpu_lanes = typename OnCpuLanes<Algo>::Type;

/// True if the compiled runtime has the CPU lanes of a composition for a reduction, or for `Bytes`.
template <class Algo, class Proto, class R, int Size = int(sizeof(typename R::Type))>
inline constexpr bool has_compiled_lanes =
    (is_one_of<Algo, Bruck, CollNetChain, Doubling, Halving, OneTree, OrderedChain, OrderedTree,
               Pat, Ring, Tree> ||
     (is_one_of<Algo, CollNetDirect> && !reduces<R>)) &&
    is_one_of<Proto, Simple> && (Size == 1 || Size == 2 || Size == 4 || Size == 8 || Size == 16);
/// Maximum number of wires in whose slices an algorithm adds up at once.
template <class Algo>
inline constexpr int max_sources = Algo::wires <= 2 ? 1 : 4;

/// Runs the CPU lanes of a call. Defined in the compiled runtime.
template <class Op, class Algo, class R>
void run_compiled_lanes(const Connections& connections, const CallArguments<R>& given);

}  // namespace ccl::detail
