#pragma once

#include <ccl/algo/auto_tag.hpp>
#include <ccl/detail/compose/check_algorithm.hpp>
#include <ccl/detail/compose/check_protocol.hpp>
#include <ccl/detail/multicast/check.hpp>

namespace ccl::detail {

/// States in one sentence what is wrong with a composition.
template <class Op, class Algo, class Proto, class T>
constexpr bool check_collective() {
  static_assert(!is_auto<Algo> && !is_auto<Proto>,
                "ccl: what Auto (the default) stands for is in <ccl/auto.hpp>; include that or "
                "<ccl/ccl.hpp>");
  static_assert(is_auto<Algo> || StatesSupports<Algo, Op>,
                "ccl: the second argument of Collective must be an algorithm (Ring, Tree, ..., or "
                "one that states the operations that it `supports`); protocol and transport follow "
                "it");
  static_assert(is_auto<Algo> || !StatesSupports<Algo, Op> || RunsOperation<Algo, Op>,
                "ccl: this algorithm does not run this operation; see `supports` in "
                "its header for those that it does");
  if constexpr (RunsOperation<Algo, Op>) static_assert(check_algorithm<Op, Algo>());
  static_assert(
      !RunsOperation<Algo, Op> || !Protocol<Proto, AnyLanes> || MakesSteps<Algo, Op, Proto>,
      "ccl: this algorithm says that it `supports` this operation and has no `run(Op, "
      "context)` for it");
  if constexpr (!is_auto<Proto>) static_assert(check_protocol<Proto>());
  static_assert(check_transport<Proto, T>());
  static_assert(!Multicasts<Algo> || multicast_of<T> != MulticastKind::none,
                "ccl: this algorithm needs multicast memory, which this transport does not make; "
                "use NvlsTransport or DefaultTransport");
  static_assert(Multicasts<Algo> || !makes_no_wires<T>,
                "ccl: this transport makes multicast memory and connects no wires; use Nvls, or "
                "DefaultTransport");
  static_assert(
      !OverPeers<Algo> || Multicasts<Algo> || offers_peer_view<T>,
      "ccl: this algorithm addresses its peers' memory and would ignore this transport; use "
      "P2pTransport or DefaultTransport");
  static_assert(!ReducesInNetwork<Algo> || offers_network<T>,
                "ccl: this algorithm needs a network that reduces and would ignore this transport; "
                "use CollNetTransport or DefaultTransport");
  static_assert(ReducesInNetwork<Algo> || !reduces_alone<T>,
                "ccl: CollNetTransport carries sums between hosts and no messages; use "
                "CollNetChain or CollNetDirect over it, or DefaultTransport");
  if constexpr (Multicasts<Algo>) {
    static_assert(check_multicast<Op, Algo, Proto, Bytes>());
  } else {
    static_assert(check_flags<Op, Algo, Proto>());
  }
  return true;
}

}  // namespace ccl::detail
