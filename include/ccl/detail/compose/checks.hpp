#pragma once

#include <ccl/choose/forward.hpp>
#include <ccl/comm/communicator.hpp>
#include <ccl/algo/cost.hpp>
#include <ccl/proto/lane_group.hpp>
#include <ccl/proto/protocol.hpp>
#include <ccl/detail/wire/context.hpp>
#include <ccl/element/reduce_op.hpp>
#include <ccl/transport/transport.hpp>

#include <cuda/std/concepts>

#include <string>

namespace ccl::detail {
template <class Algo, class Op>
concept Runs = requires {
  requires Algo::template supports<Op>;
};

/// Algorithms that address their peers' memory.
template <class Algo>
concept OverPeers = requires {
  typename Algo::RankCounts;
};

/// Algorithms over peers' memory that take an operation as messages between any two ranks.
template <class Op, class Algo>
concept ExchangesOverPeers = OverPeers<Algo> && requires {
  requires Algo::template exchanges<Op>;
};
/// Operations that an algorithm takes as messages between any two ranks.
template <class Op, class Algo>
concept Exchanges = ExchangesOverPeers<Op, Algo> || requires {
  Algo::serves_pairs;
};

template <class Algo>
concept StoresPlainly = requires {
  requires Algo::stores_plainly;
};

/// Exchanges whose counts may lie in memory.
template <class Op, class Algo, class Proto>
inline constexpr bool takes_counts =
    !OverPeers<Algo> || (ExchangesOverPeers<Op, Algo> && Proto::carries_flags);

/// Algorithms over peers' memory whose data copy engines move.
template <class Algo>
concept MovesByCopies = requires {
  requires Algo::copies;
};

/// Of these, those that peers' streams tell each other about.
template <class Algo>
concept TellsByStream = MovesByCopies<Algo> && requires {
  requires Algo::by_stream;
};

/// Protocols without flags beside the data go over peers' memory, and carry some reductions only.
template <class Proto>
concept CarriesSome = requires {
  Proto::template supports_reduction<Sum, float>;
};
template <class Proto, class F, class T>
constexpr bool protocol_carries() {
  if constexpr (CarriesSome<Proto>) return Proto::template supports_reduction<F, T>;
  return true;
}
template <class Algo, class F>
constexpr bool algorithm_takes() {
  if constexpr (requires { Algo::template supports_reduction<F>; }) return Algo::template supports_reduction<F>;
  return true;
}
/// Whether a composition can run this reduction.
template <class Algo, class Proto, class F, class T>
constexpr bool runs_reduction() {
  return algorithm_takes<Algo, F>() && protocol_carries<Proto, F, T>() &&
         (!Algo::reorders || is_commutative<F>);
}

// What an algorithm over wires says of itself; docs/extending.md has it all in one place.
template <class Algo>
concept PlansWires = OverPeers<Algo> || requires {
  { Algo::max_wires(2) } -> cuda::std::same_as<int>;
  { Algo::wires } -> cuda::std::convertible_to<int>;
  { Algo::root_moves_wires } -> cuda::std::convertible_to<bool>;
};
template <class Algo>
concept StatesOrder = requires {
  { *&Algo::name } -> cuda::std::convertible_to<const char*>;  // static: it has an address
  { *&Algo::reorders } -> cuda::std::convertible_to<bool>;
};
struct PeersOfPositions;
template <class Algo>
concept NamesPeers = OverPeers<Algo> || requires(PeersOfPositions& positions) {
  Algo::peers(positions);
};
// What it may say besides, in a form that is read: else `Auto` would take it for a ring.
template <class Algo, class Op>
concept HasCostTerms = requires {
  &Algo::cost_terms;
}
|| requires {
  &Algo::template cost_terms<Op>;
};
template <class Algo, class Op>
concept HasInterNodeVolume = requires {
  &Algo::inter_node_volume;
}
|| requires {
  &Algo::template inter_node_volume<Op>;
};
template <class Algo, class Op>
concept HasInterNodeFraction = requires {
  &Algo::inter_node_fraction;
}
|| requires {
  &Algo::template inter_node_fraction<Op>;
};
template <class Algo, class Op>
concept CostTermsAreRead = !HasCostTerms<Algo, Op> || requires {
  { Algo::template cost_terms<Op>(2) } -> cuda::std::convertible_to<CostTerms>;
};
template <class Algo, class Op>
concept FarVolumeIsRead = !HasInterNodeVolume<Algo, Op> || requires {
  { Algo::template inter_node_volume<Op>(2, 1) } -> cuda::std::convertible_to<double>;
};
template <class Algo, class Op>
concept FarPartIsRead = !HasInterNodeFraction<Algo, Op> || requires {
  { Algo::inter_node_fraction(2, 1) } -> cuda::std::convertible_to<double>;
}
|| requires {
  { Algo::template inter_node_fraction<Op>(2, 1) } -> cuda::std::convertible_to<double>;
};
template <class Algo>
concept TakesAreRead = !requires {
  *&Algo::supports_reduction;
};
template <class Algo>
concept OrderIsRead = !requires {
  *&Algo::order;
};
template <class Algo, class Op, class Proto>
concept MakesSteps = OverPeers<Algo> ||
    requires(WireContext<Op, AnyLanes, Proto, Bytes, 1>& context) {
  Algo::run(Op{}, context);
};

/// Wires differ with the root, so they are made when a root is first named.
template <class Op, class Algo>
inline constexpr bool wires_by_root = [] {
  if constexpr (OverPeers<Algo>) {
    return false;
  } else {
    return Op::rooted && Algo::root_moves_wires;
  }
}();

/// A composition that was made for the other kind of rank is refused.
Result<void> check_side(const Communicator& comm, const std::string& name, bool cpus, bool gpus);

/// Says in one sentence what is wrong with a composition.
template <class Op, class Algo, class Proto, class T>
constexpr bool check_collective() {
  static_assert(!is_auto<Algo> && !is_auto<Proto>,
                "ccl: what Auto (the default) stands for is in <ccl/auto.hpp>; include that or "
                "<ccl/ccl.hpp>");
  static_assert(is_auto<Algo> || Runs<Algo, Op>,
                "ccl: this algorithm does not run this operation; see `supports` in "
                "its header for those that it does");
  // Each concept alone in its assertion: the compiler's notes then name what is missing.
  if constexpr (Runs<Algo, Op>) {
    static_assert(StatesOrder<Algo>,
                  "ccl: an algorithm must state its `name` and whether it `reorders` the ranks, as "
                  "Ring does");
    static_assert(PlansWires<Algo>,
                  "ccl: an algorithm over wires must state `max_wires(ranks)` (an int), `wires` "
                  "and `root_moves_wires`, as Ring does");
    static_assert(NamesPeers<Algo>,
                  "ccl: an algorithm over wires must name the ranks that it talks to in "
                  "`peers(seats)`, as Ring does");
    static_assert(CostTermsAreRead<Algo, Op>,
                  "ccl: an algorithm that states its `cost_terms` does so as a template: `template "
                  "<class Op> static constexpr Effort cost_terms(int ranks)`, as Ring does");
    static_assert(FarVolumeIsRead<Algo, Op> && FarPartIsRead<Algo, Op>,
                  "ccl: an algorithm that states its `inter_node_volume` or `inter_node_fraction` does so as "
                  "`template <class Op> static constexpr double inter_node_volume(int ranks, int hosts)`, "
                  "as Pairwise does");
    static_assert(
        TakesAreRead<Algo>,
        "ccl: an algorithm that states what it `takes` does so of each functor: `template "
        "<class F> static constexpr bool takes`");
    static_assert(OrderIsRead<Algo>,
                  "ccl: an algorithm that states its `order` does so of each operation: `template "
                  "<class Op> static constexpr SumOrder order`, as Ring does");
  }
  static_assert(!Runs<Algo, Op> || !Protocol<Proto, AnyLanes> || MakesSteps<Algo, Op, Proto>,
                "ccl: this algorithm says that it `supports` this operation and has no `run(Op, "
                "context)` for it");
  if constexpr (!is_auto<Proto>) {
    static_assert(Protocol<Proto, AnyLanes>,
                  "ccl: the third argument of Collective must be a protocol (Simple, LL, LL128, or "
                  "a model of Protocol); the compiler's notes name the missing member");
  }
  static_assert(Transport<T>,
                "ccl: the fourth argument of Collective must be a transport (a model "
                "of Transport); the compiler's notes name the missing member");
  static_assert(T::atomic_line_bytes >= Proto::line_bytes,
                "ccl: this protocol needs lines that land whole, and the transport's "
                "atomic_line_bytes is too small for it; use Simple or LL");
  static_assert(!OverPeers<Algo> || offers_peer_view<T>,
                "ccl: this algorithm addresses its peers' memory, and the transport does not offer "
                "that; use P2pTransport or DefaultTransport");
  static_assert(
      !OverPeers<Algo> || StoresPlainly<Algo> || MovesByCopies<Algo> || Proto::carries_flags,
      "ccl: this algorithm tells by flags that its data has landed; use LL or LL128");
  static_assert(!CarriesSome<Proto> || (OverPeers<Algo> && Op::reduces),
                "ccl: this protocol carries reductions over peers' memory and nothing else; use "
                "LL or LL128, or OneShot or TwoShot");
  static_assert(!MovesByCopies<Algo> || !Proto::carries_flags,
                "ccl: copy engines move data as it is, without flags; use Simple");
  static_assert(!StoresPlainly<Algo> || !Proto::carries_flags,
                "ccl: this algorithm stores data where the user wants it, which leaves no room for "
                "flags; use Simple");
  return true;
}

}  // namespace ccl::detail
