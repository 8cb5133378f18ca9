#pragma once

#include <ccl/element/reduce_op.hpp>

namespace ccl {

/// Algorithms whose `supports` names the operation.
template <class Algo, class Op>
concept RunsOperation = requires { requires Algo::template supports<Op>; };

/// Algorithms that address their peers' memory. Others move data over wires.
template <class Algo>
concept OverPeers = requires { typename Algo::RankCounts; };

/// Algorithms over peers' memory that reach all ranks at once.
template <class Algo>
concept Multicasts = OverPeers<Algo> && requires { requires Algo::multicasts; };

/// Algorithms over wires between whose hosts a network reduces. `network_heads` is the maximum
/// number of heads that a host has on one channel.
template <class Algo>
concept ReducesInNetwork = requires {
  { Algo::network_heads } -> cuda::std::convertible_to<int>;
};

namespace detail {
/// Types that state which operations they run, as algorithms do.
template <class Algo, class Op>
concept StatesSupports = requires { Algo::template supports<Op>; };

/// Algorithms over multicast memory whose shares belong to the heads, not to all ranks.
template <class Algo>
concept HeadsOwnShares = Multicasts<Algo> && requires { requires Algo::heads_own_shares; };

/// Algorithms over multicast memory that use the user's buffers where they lie in windows.
template <class Op, class Algo>
concept BindsWindows = Multicasts<Algo> && requires { requires Algo::template binds_windows<Op>; };

/// Algorithms over peers' memory that run an operation as messages between any two ranks.
template <class Op, class Algo>
concept ExchangesOverPeers = OverPeers<Algo> && requires { requires Algo::template exchanges<Op>; };
/// Algorithms that run an operation as messages between any two ranks.
template <class Op, class Algo>
concept Exchanges = ExchangesOverPeers<Op, Algo> || requires { Algo::serves_pairs; };

/// Algorithms that store data directly into the peers' receive buffers.
template <class Algo>
concept StoresPlainly = requires { requires Algo::stores_plainly; };

/// Algorithms over peers' memory that run a reduction by reads of the peers' buffers.
template <class Op, class Algo>
concept ReadsPeers = StoresPlainly<Algo> && !Multicasts<Algo> && Op::reduces;

/// True if an exchange takes counts that lie in memory.
template <class Op, class Algo, class Proto>
inline constexpr bool takes_counts =
    !OverPeers<Algo> || (ExchangesOverPeers<Op, Algo> && Proto::carries_flags);

/// Algorithms over peers' memory whose data copy engines move.
template <class Algo>
concept MovesByCopies = requires { requires Algo::copies; };

/// Algorithms by copy engines that signal their peers from streams.
template <class Algo>
concept SignalsByStream = MovesByCopies<Algo> && requires { requires Algo::by_stream; };

/// Protocols that carry reductions only. They have no flags beside the data.
template <class Proto>
concept CarriesSome = requires { Proto::template supports_reduction<Sum, float>; };
template <class Proto, class F, class T>
constexpr bool protocol_carries() {
  if constexpr (CarriesSome<Proto>) return Proto::template supports_reduction<F, T>;
  return true;
}
template <class Algo, class F>
constexpr bool algorithm_takes() {
  if constexpr (requires { Algo::template supports_reduction<F>; })
    return Algo::template supports_reduction<F>;
  return true;
}
/// True if the memory of an algorithm can run this reduction: switches have few of them. `Acc`:
/// accumulate type, or void for that of the elements.
template <class Algo, class F, class T, class Acc = void>
constexpr bool memory_reduces() {
  if constexpr (Multicasts<Algo>) {
    return Algo::template supports_elements<F, T, Acc>;
  } else if constexpr (requires { typename Algo::InnerAlgo; }) {
    return memory_reduces<typename Algo::InnerAlgo, F, T, Acc>() &&
           memory_reduces<typename Algo::OuterAlgo, F, T, Acc>();
  } else {
    return true;
  }
}
/// True if a composition can run this reduction.
template <class Algo, class Proto, class F, class T, class Acc = void>
constexpr bool runs_reduction() {
  return algorithm_takes<Algo, F>() && protocol_carries<Proto, F, T>() &&
         memory_reduces<Algo, F, T, Acc>() && (!Algo::reorders || is_commutative<F>);
}

/// True if the wires depend on the root. They are then connected at the first call with that root.
template <class Op, class Algo>
inline constexpr bool wires_by_root = [] {
  if constexpr (OverPeers<Algo>) {
    return false;
  } else {
    return Op::rooted && Algo::root_moves_wires;
  }
}();

/// True if tests prove the algorithm. A type derived from such an algorithm is not validated.
template <class Algo>
inline constexpr bool is_validated = false;
template <class Algo>
  requires cuda::std::same_as<typename Algo::Validated, Algo>
inline constexpr bool is_validated<Algo> = true;
}  // namespace detail

}  // namespace ccl
