#pragma once

#include <ccl/algo/cost.hpp>
#include <ccl/algo/traits.hpp>
#include <ccl/detail/wire/context.hpp>

#include <cuda/std/concepts>

namespace ccl::detail {

struct PeersOfPositions;

// The members that an algorithm over wires must state; docs/guide/own_algorithm.md lists them.
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
template <class Algo>
concept NamesPeers =
    OverPeers<Algo> || requires(PeersOfPositions& positions) { Algo::peers(positions); };
template <class Algo, class Op, class Proto>
concept MakesSteps =
    OverPeers<Algo> ||
    requires(WireContext<Op, AnyLanes, Proto, Bytes, 1>& context) { Algo::run(Op{}, context); };

// The members that an algorithm may state. A member of another form is refused, because `Auto`
// would assume the cost of a ring.
template <class Algo, class Op>
concept HasCostTerms =
    requires { &Algo::cost_terms; } || requires { &Algo::template cost_terms<Op>; };
template <class Algo, class Op>
concept HasInterNodeVolume =
    requires { &Algo::inter_node_volume; } || requires { &Algo::template inter_node_volume<Op>; };
template <class Algo, class Op>
concept HasInterNodeFraction = requires { &Algo::inter_node_fraction; } ||
                               requires { &Algo::template inter_node_fraction<Op>; };
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
} || requires {
  { Algo::template inter_node_fraction<Op>(2, 1) } -> cuda::std::convertible_to<double>;
};
template <class Algo>
concept TakesAreRead = !requires { *&Algo::supports_reduction; };
template <class Algo>
concept OrderIsRead = !requires { *&Algo::order; };

/// States in one sentence what is wrong with an algorithm that runs `Op`. Each assertion holds one
/// concept, so that the compiler's notes name the missing member.
template <class Op, class Algo>
constexpr bool check_algorithm() {
  static_assert(StatesOrder<Algo>,
                "ccl: an algorithm must state its `name` and whether it `reorders` the ranks, as "
                "Ring does");
  static_assert(PlansWires<Algo>,
                "ccl: an algorithm over wires must state `max_wires(ranks)` (an int), `wires` "
                "and `root_moves_wires`, as Ring does");
  static_assert(NamesPeers<Algo>,
                "ccl: an algorithm over wires must name the ranks that it talks to in "
                "`peers(positions)`, as Ring does");
  static_assert(CostTermsAreRead<Algo, Op>,
                "ccl: an algorithm that states its `cost_terms` does so as a template: `template "
                "<class Op> static constexpr Effort cost_terms(int ranks)`, as Ring does");
  static_assert(
      FarVolumeIsRead<Algo, Op> && FarPartIsRead<Algo, Op>,
      "ccl: an algorithm that states its `inter_node_volume` or `inter_node_fraction` does so as "
      "`template <class Op> static constexpr double inter_node_volume(int ranks, int hosts)`, "
      "as Pairwise does");
  static_assert(TakesAreRead<Algo>,
                "ccl: an algorithm that states `supports_reduction` does so of each functor: "
                "`template <class F> static constexpr bool supports_reduction`");
  static_assert(OrderIsRead<Algo>,
                "ccl: an algorithm that states its `order` does so of each operation: `template "
                "<class Op> static constexpr SumOrder order`, as Ring does");
  return true;
}

}  // namespace ccl::detail
