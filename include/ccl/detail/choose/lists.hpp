#pragma once

#include <ccl/algo/hierarchical.hpp>
#include <ccl/algo/traits.hpp>
#include <ccl/choose/candidate.hpp>
#include <ccl/detail/choose/facts.hpp>
#include <ccl/detail/compose/check_protocol.hpp>
#include <ccl/proto/ll.hpp>
#include <ccl/proto/ll128.hpp>
#include <ccl/proto/simple.hpp>

namespace ccl::detail {

template <class... Lists>
struct Joined;
template <class... Cs>
struct Joined<Candidates<Cs...>> {
  using List = Candidates<Cs...>;
};
template <class... As, class... Bs, class... Rest>
struct Joined<Candidates<As...>, Candidates<Bs...>, Rest...> {
  using List = typename Joined<Candidates<As..., Bs...>, Rest...>::List;
};
/// Candidates of a list with protocol `Proto`.
template <class List, class Proto>
struct OfProto;
template <class... Cs, class Proto>
struct OfProto<Candidates<Cs...>, Proto> {
  using List =
      typename Joined<Candidates<>,
                      cuda::std::conditional_t<cuda::std::is_same_v<typename Cs::Protocol, Proto>,
                                               Candidates<Cs>, Candidates<>>...>::List;
};

template <class C>
concept IsCandidate =
    requires { typename C::template On<AllReduce>; } && !is_auto<typename C::Algorithm>;
/// List of the program's own.
template <class... Cs>
struct GivenList {
  static_assert(sizeof...(Cs) > 0,
                "ccl: AutoOf and DeterministicOf list at least one candidate, such as "
                "Candidate<Ring, LL>; Auto and Deterministic are ccl's own lists");
  static_assert((IsCandidate<Cs> && ...),
                "ccl: AutoOf and DeterministicOf list candidates, such as Candidate<Ring, LL>");
};

/// Candidates for an algorithm and a protocol, of which one is `Auto`.
template <class Op, class Algo, class Proto>
struct CandidatesOf {
  // The algorithm is given: it is combined with each of its protocols.
  using List = cuda::std::conditional_t<
      StoresPlainly<Algo> || MovesByCopies<Algo> || ReducesInNetwork<Algo>,
      Candidates<Candidate<Algo, Simple>>,
      cuda::std::conditional_t<
          OverPeers<Algo>, Candidates<Candidate<Algo, LL>, Candidate<Algo, LL128>>,
          Candidates<Candidate<Algo, LL>, Candidate<Algo, LL128>, Candidate<Algo, Simple>>>>;
};
/// <ccl/auto.hpp> has ccl's own lists.
template <class Op, class Algo, class Proto>
  requires(is_one_of<Algo, Auto, Deterministic>)
struct CandidatesOf<Op, Algo, Proto> {
  static_assert(!is_auto<Algo>,
                "ccl: what Auto (the default) stands for is in <ccl/auto.hpp>; include that or "
                "<ccl/ccl.hpp>");
  using List = Candidates<>;
};
template <class Op, class... Cs, class Proto>
struct CandidatesOf<Op, AutoOf<Cs...>, Proto> : GivenList<Cs...> {
  using List = typename OfProto<Candidates<Cs...>, Proto>::List;
};
template <class Op, class... Cs, class Proto>
struct CandidatesOf<Op, DeterministicOf<Cs...>, Proto> : GivenList<Cs...> {
  using List = typename OfProto<Candidates<Cs...>, Proto>::List;
};
template <class Op, class C, class... Cs>
struct CandidatesOf<Op, AutoOf<C, Cs...>, Auto> : GivenList<C, Cs...> {
  using List = Candidates<C, Cs...>;
};
template <class Op, class C, class... Cs>
struct CandidatesOf<Op, DeterministicOf<C, Cs...>, Auto> : GivenList<C, Cs...> {
  using List = Candidates<C, Cs...>;
};

/// True if an algorithm can run over a transport: one over peers' memory needs a peer view, one
/// whose network reduces needs that.
template <class Algo, class Transport>
constexpr bool runs_over() {
  if constexpr (is_hierarchical<Algo>) {
    return runs_over<typename Algo::InnerAlgo, Transport>() &&
           runs_over<typename Algo::OuterAlgo, Transport>();
  } else {
    if constexpr (Multicasts<Algo>) return multicast_of<Transport> != MulticastKind::none;
    if constexpr (ReducesInNetwork<Algo>) return offers_network<Transport>;
    return !reduces_alone<Transport> && (!OverPeers<Algo> || offers_peer_view<Transport>);
  }
}
/// Candidates of a list that can run over a transport.
template <class List, class Transport>
struct RunningOver;
template <class... Cs, class Transport>
struct RunningOver<Candidates<Cs...>, Transport> {
  using List = typename Joined<
      Candidates<>,
      cuda::std::conditional_t<runs_over<typename Cs::Algorithm, GivenTransport<Cs, Transport>>(),
                               Candidates<Cs>, Candidates<>>...>::List;
};

/// Candidates of an `Auto` over a transport. Those of ccl's own lists that cannot run over it are
/// left out; one that the program lists is an error of the compiler.
template <class Op, class Algo, class Proto, class Transport>
struct CandidatesOver : CandidatesOf<Op, Algo, Proto> {};
template <class Op, class Algo, class Proto, class Transport>
  requires(is_one_of<Algo, Auto, Deterministic>)
struct CandidatesOver<Op, Algo, Proto, Transport>
    : RunningOver<typename CandidatesOf<Op, Algo, Proto>::List, Transport> {};

}  // namespace ccl::detail
