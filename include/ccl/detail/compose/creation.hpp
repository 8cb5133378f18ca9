#pragma once

#include <ccl/algo/rank_counts.hpp>
#include <ccl/algo/traits.hpp>
#include <ccl/comm/communicator.hpp>
#include <ccl/detail/compose/default_plans.hpp>
#include <ccl/detail/copy/registry.hpp>
#include <ccl/detail/exchange/registry.hpp>
#include <ccl/detail/exec/kernel_registry.hpp>
#include <ccl/detail/runtime/connections.hpp>
#include <ccl/detail/runtime/transport_table.hpp>
#include <ccl/detail/wire/peers_of.hpp>
#include <ccl/transport/for_device.hpp>

#include <array>
#include <memory>
#include <optional>

namespace ccl::detail {

/// Description of a composition as values, from which the compiled runtime creates it.
struct Composed {
  const char *op, *algo, *proto;
  ExecSpaces sides;
  WireNeeds needs;
  TransportTable transport_table;
  Index slot_bytes;  // default of a plan without slot bytes
  Result<Plans> (*plans)(const Communicator& comm, const TransportTable& by,
                         const std::optional<Plan>& given);
  /// Points to the list of all kernels that the composition may launch. The list is null without
  /// kernels.
  KernelLoader* const* kernels;
  std::array<int (*const*)(int device), 4> loads;

  // Members of compositions over wires.
  int (*max_wires)(int ranks) = nullptr;
  PositionsOf positions{};
  // Members of compositions over peer memory.
  bool (*takes_ranks)(int ranks) = nullptr;
  int max_ranks = 0;  // for which it can have kernels
  bool copies = false, pulls = false, by_stream = false, stores_plainly = false;
  MulticastKind multicast = MulticastKind::none;
  bool binds_windows = false;

  bool over_peers() const { return takes_ranks != nullptr; }
};

/// Returns the maximum number of ranks for which an algorithm over peer memory can have kernels of
/// the operation. Either can state a smaller number than a peer view has.
template <class Op, class Algo>
constexpr int max_ranks_of() {
  if constexpr (requires { Op::max_ranks; }) {
    return Op::max_ranks;
  } else if constexpr (requires { Algo::RankCounts::max_ranks; }) {
    return Algo::RankCounts::max_ranks;
  } else {
    return max_view_ranks;
  }
}

/// True if the kernels of an algorithm over peer memory run so many ranks.
template <class Op, class Algo>
constexpr bool takes_ranks(int ranks) {
  if constexpr (ExchangesOverPeers<Op, Algo> && !MovesByCopies<Algo>) {
    return AnyRankCount::contains(ranks);
  } else {
    return ranks <= max_ranks_of<Op, Algo>() && Algo::RankCounts::contains(ranks);
  }
}

template <class Op, class Algo, class Proto, Transport T>
constexpr Composed composed() {
  Composed of{Op::name,
              Algo::name,
              Proto::name,
              exec_spaces<T>(),
              WireNeeds::of<Proto>(),
              transport_table<T>(),
              Proto::default_slot_bytes,
              nullptr,
              &ComposedKernels<Op, on_gpu_lanes<Algo>, Proto>::first,
              {&ExchangeKernels<Algo, Proto>::load, &PeerExchangeKernels<Algo, Proto>::load,
               &CountedKernels<Algo, Proto>::load, &CopyKernels<Algo>::load}};
  if constexpr (OverPeers<Algo>) {
    of.plans = peer_plans<Algo>;
    of.max_ranks = max_ranks_of<Op, Algo>();
    of.takes_ranks = [](int ranks) { return takes_ranks<Op, Algo>(ranks); };
    if constexpr (MovesByCopies<Algo>) {
      of.copies = true;
      of.pulls = Algo::stages;
    }
    of.by_stream = SignalsByStream<Algo>;
    of.stores_plainly = StoresPlainly<Algo> && !Multicasts<Algo>;
    if constexpr (Multicasts<Algo>) of.multicast = multicast_of<T>;
    of.binds_windows = BindsWindows<Op, Algo>;
  } else {
    of.plans = wire_plans<Algo, Proto>;
    of.max_wires = [](int ranks) { return Algo::max_wires(ranks); };
    of.positions = positions_of<Op, Algo>();
    of.needs.exchanges = Exchanges<Op, Algo>;
    if constexpr (ReducesInNetwork<Algo>) {
      of.needs.network_heads = Algo::network_heads;
      of.needs.network_move = network_move_of<Op>;
    }
    if constexpr (requires { Algo::max_host_ranks; })
      of.needs.max_host_ranks = Algo::max_host_ranks;
  }
  of.needs.notes_phases = requires { Algo::notes_phases; };
  return of;
}

/// Creates the connections of a composition. Collective. `late`: on CPU ranks, wires wait for the
/// first call.
Result<std::shared_ptr<Connections>> make_connections(const Composed& of, const Communicator& comm,
                                                      std::optional<Plan> plan, bool late);

}  // namespace ccl::detail
