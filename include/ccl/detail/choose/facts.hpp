#pragma once

#include <ccl/algo/cost.hpp>
#include <ccl/algo/hierarchical.hpp>
#include <ccl/algo/traits.hpp>
#include <ccl/choose/candidate.hpp>
#include <ccl/detail/base/selection.hpp>
#include <ccl/detail/choose/chooser.hpp>
#include <ccl/detail/compose/creation.hpp>
#include <ccl/detail/compose/default_plans.hpp>
#include <ccl/detail/exec/launch_shape.hpp>
#include <ccl/detail/runtime/transport_table.hpp>
#include <ccl/detail/wire/context.hpp>
#include <ccl/transport/for_device.hpp>
#include <ccl/transport/nvls.hpp>
#include <ccl/types/operations.hpp>

#include <cstddef>

namespace ccl::detail {

template <class C>
constexpr bool candidate_on_gpus() {
  if constexpr (requires { C::on_gpus; }) return C::on_gpus;
  return true;
}
template <class C>
constexpr bool candidate_on_cpus() {
  if constexpr (requires { C::on_cpus; }) return C::on_cpus;
  return !OverPeers<typename C::Algorithm> || Multicasts<typename C::Algorithm>;
}
/// Transport of a candidate, if it names a transport other than the default.
template <class C, class Transport>
using GivenTransport =
    cuda::std::conditional_t<cuda::std::is_same_v<typename C::Over, DefaultTransport>, Transport,
                             typename C::Over>;
template <class T, bool on_cpus, bool on_gpus>
struct OnSides {
  using Type = T;
};
template <class T>
struct OnSides<T, true, false> {
  using Type = ForCpus<T>;
};
template <class T>
struct OnSides<T, false, true> {
  using Type = ForGpus<T>;
};
template <class C, class Transport>
using TransportOf = typename OnSides<GivenTransport<C, Transport>, candidate_on_cpus<C>(),
                                     candidate_on_gpus<C>()>::Type;

template <Transport T>
inline const TransportTable transport_table_of = transport_table<T>();

/// True if an algorithm needs receive buffers in windows.
template <class Algo>
inline constexpr bool writes_windows = [] {
  if constexpr (MovesByCopies<Algo>) return !Algo::stages;
  return false;
}();
/// Blocks of a message over wires between hosts, with the plan of a communicator.
template <class Op, class Algo, class Proto>
int blocks_over_network(Index bytes, const NetworkFacts& network, const HostFacts& host,
                        int max_blocks) {
  const Plan plan = default_device_plans<Algo, Proto>(network, host, max_blocks)
                        .by_medium[std::size_t(Medium::network)];
  constexpr int lanes = group_lanes(Proto::carries_flags);
  constexpr int max_lanes = WireBody<Op, Algo, Proto, 16, Bytes>::max_lanes;
  return launch_shape(bytes, plan.channels, plan.channel_bytes, lanes, max_lanes, max_blocks)
      .blocks;
}
template <class Op, class Algo, class Proto>
LevelStep level_step(bool outer, bool shared, bool once_a_host) {
  LevelStep step;
  step.outer = outer;
  step.shared = shared;
  step.once_a_host = once_a_host;
  step.packing = packing_of<Proto>();
  step.line_bytes = Proto::line_bytes;
  step.cost_terms = [](int ranks) { return cost_terms_of<Op, Algo>(ranks); };
  if constexpr (OverPeers<Algo>) {
    step.mover = Multicasts<Algo> ? Mover::switches : Mover::peers;
    step.takes_ranks = [](int ranks) { return takes_ranks<Op, Algo>(ranks); };
  } else {
    step.blocks_over_network = &blocks_over_network<Op, Algo, Proto>;
  }
  return step;
}
/// Cost of a level of Reduce. A chain carries the sum of the root's host around all others.
///
/// Among 8 CPU ranks of 2 hosts it takes 412 us for 256 KiB and 2963 us for 2 MiB. On levels it
/// takes 282 and 2413 us; see benchmarks/network/across_hosts.cpp.
template <class Op, class Algo>
CostTerms half_volume(int ranks) {
  const CostTerms cost_terms = cost_terms_of<Op, Algo>(ranks);
  return {cost_terms.hops, cost_terms.volume / 2};
}
/// Steps of a `Hierarchical`, in the order in which it creates them.
template <class Op, class Algo, class Proto>
void add_steps(CandidateFacts& facts) {
  using Inner = typename Algo::InnerAlgo;
  using InnerProto = typename Algo::template InnerProto<Proto>;
  using Outer = typename Algo::OuterAlgo;
  using OuterProto = typename Algo::template OuterProto<Proto>;
  const auto add = [&](const LevelStep& step) {
    facts.steps[std::size_t(facts.step_count++)] = step;
  };
  constexpr bool all_reduce = cuda::std::is_same_v<Op, AllReduce>;
  facts.by_rank = is_one_of<Op, AllGather, ReduceScatter, AllToAll>;
  facts.relays = cuda::std::is_same_v<Op, AllToAll>;
  facts.by_rail = !(all_reduce && !Algo::rails) && !cuda::std::is_same_v<Op, Broadcast> &&
                  !HeadsOwnShares<Inner>;
  if constexpr (all_reduce && Algo::rails) {
    add(level_step<ReduceScatter, Inner, InnerProto>(false, false, false));
    add(level_step<AllReduce, Outer, OuterProto>(true, true, false));
    add(level_step<AllGather, Inner, InnerProto>(false, false, false));
  } else if constexpr (all_reduce) {
    add(level_step<Reduce, Inner, InnerProto>(false, false, false));
    add(level_step<AllReduce, Outer, OuterProto>(true, false, false));
    add(level_step<Broadcast, Inner, InnerProto>(false, false, false));
  } else if constexpr (cuda::std::is_same_v<Op, Reduce>) {
    LevelStep inside = level_step<Op, Inner, InnerProto>(false, false, false);
    LevelStep between = level_step<Op, Outer, OuterProto>(true, false, false);
    inside.cost_terms = half_volume<Op, Inner>;
    between.cost_terms = half_volume<Op, Outer>;
    between.waits = true;
    add(inside);
    add(between);
  } else {
    constexpr bool in_rails = is_one_of<Op, AllGather, ReduceScatter>;
    add(level_step<Op, Inner, InnerProto>(false, false, in_rails));
    add(level_step<Op, Outer, OuterProto>(true, in_rails, false));
  }
}

/// Algorithm that runs inside a host.
template <class Algo>
struct InsideHost {
  using Type = Algo;
};
template <class Algo>
  requires is_hierarchical<Algo>
struct InsideHost<Algo> {
  using Type = typename Algo::InnerAlgo;
};
/// True if an algorithm, or its level inside a host, needs multicast memory.
template <class Algo>
constexpr bool needs_multicast() {
  return Multicasts<typename InsideHost<Algo>::Type>;
}

template <class Op, class C, class Transport>
CandidateFacts facts_of() {
  using Algo = typename C::Algorithm;
  using Proto = typename C::Protocol;
  CandidateFacts facts;
  facts.algo = Algo::name;
  facts.proto = Proto::name;
  facts.packing = packing_of<Proto>();
  facts.line_bytes = Proto::line_bytes;
  facts.order = order_of<Op, Algo>();
  facts.by_network = ReducesInNetwork<Algo>;
  // Reductions of networks have a constraint of their own.
  facts.takes_all = facts.by_network || !requires { Algo::template supports_reduction<Sum>; };
  if constexpr (ReducesInNetwork<Algo>) facts.host_hops = Algo::host_hops;
  if constexpr (requires { Algo::max_host_ranks; }) facts.max_host_ranks = Algo::max_host_ranks;
  facts.carries_all = !CarriesSome<Proto>;
  facts.reorders = Algo::reorders;
  if constexpr (requires { C::for_order; }) facts.for_order = C::for_order;
  if constexpr (requires { C::for_torn_lines; }) facts.for_torn_lines = C::for_torn_lines;
  facts.reads_peers = ReadsPeers<Op, typename C::Algorithm>;
  if constexpr (needs_multicast<Algo>()) {
    using Inside = typename InsideHost<Algo>::Type;
    facts.multicast = multicast_of<GivenTransport<C, Transport>>;
    facts.by_switches_alone = requires { Inside::by_switches_alone; };
    static_cast<void>(&known_transport<NvlsTransport>);
  }
  facts.on_gpus = candidate_on_gpus<C>();
  facts.on_cpus = candidate_on_cpus<C>();
  if constexpr (!is_hierarchical<Algo>) {
    facts.cost_terms = [](int ranks) { return cost_terms_of<Op, Algo>(ranks); };
    facts.inter_node_volume = [](int ranks, int hosts) {
      return inter_node_volume<Op, Algo>(ranks, hosts);
    };
  }
  facts.inter_node_fraction = [](int ranks, int hosts) {
    return inter_node_fraction<Op, Algo>(ranks, hosts);
  };
  facts.transport_table = &transport_table_of<GivenTransport<C, Transport>>;
  if constexpr (is_hierarchical<Algo>) {
    add_steps<Op, Algo, Proto>(facts);
    using OuterProto = typename Algo::template OuterProto<Proto>;
    facts.line_bytes = OuterProto::line_bytes;
    facts.packing = packing_of<OuterProto>();
  } else if constexpr (OverPeers<Algo>) {
    facts.mover = MovesByCopies<Algo> ? Mover::engines
                  : Multicasts<Algo>  ? Mover::switches
                                      : Mover::peers;
    facts.in_windows = writes_windows<Algo>;
    facts.takes_ranks = [](int ranks) { return takes_ranks<Op, Algo>(ranks); };
  } else {
    facts.blocks_over_network = &blocks_over_network<Op, Algo, Proto>;
    facts.gpu_lanes = group_lanes(Proto::carries_flags);
  }
  return facts;
}

}  // namespace ccl::detail
