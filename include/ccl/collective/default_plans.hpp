#pragma once

#include <ccl/choice.hpp>
#include <ccl/collective/checks.hpp>
#include <ccl/communicator.hpp>
#include <ccl/plan.hpp>
#include <ccl/transport/transport.hpp>

#include <array>
#include <optional>

namespace ccl::detail {

/// Plans by what a communicator's dearest edge goes through: its wires all have one shape.
struct Plans {
  std::array<Plan, 3> by_through;
  Index least_slot_bytes = 1024;  // to which slots may shrink where memory is short
  static Plans same(const Plan& plan) { return {{plan, plan, plan}}; }
};

/// On CPU lanes. Cache-sized slots: what the CPU's caches hold of one wire's ring is what it can
/// hide. Where a proxy moves them, each costs system calls: over TCP, 1 MiB took 1.4 times as long
/// in such. More than two ranks of a host (`neighbours`) fill its caches with large ones.
template <class Proto>
Plans default_host_plans(int neighbours) {
  const auto with_slots = [](Index most) {
    Plan plan;
    plan.slot_bytes = Proto::default_slot_bytes < most ? Proto::default_slot_bytes : most;
    return plan;
  };
  Plan network = with_slots(Index{neighbours > 2 ? 256 : 512} << 10);
  network.slot_count = 4;
  Plans plans = Plans::same(with_slots(Index{64} << 10));
  plans.by_through[int(Through::network)] = network;
  return plans;
}

/// Enough channels to fill a GPU; measured on H200.
template <class Algo, class Proto>
Plan default_device_plan() {
  Plan plan;
  if (Proto::carries_flags) {
    plan.channels = Algo::most_wires(64) > 8 ? 128 : Algo::wires > 2 ? 256 : 512;
    plan.slot_bytes = 4096;
    plan.chunk_steps = 2;
  } else {
    plan.channels = Algo::most_wires(64) > 8 ? 32 : Algo::wires > 2 ? 256 : 128;
    plan.slot_bytes = Index{128} << 10;
    plan.chunk_steps = Algo::wires > 2 ? 1 : 2;
  }
  return plan;
}

/// PCIe is full with a few channels. A few threads carry a network's, and each costs a connection;
/// larger steps cost fewer calls. `ring_count`: of the topology.
template <class Algo, class Proto>
Plans default_device_plans(int ring_count) {
  constexpr bool to_many = Algo::most_wires(64) > 8;
  Plan host = default_device_plan<Algo, Proto>(), network = host;
  if (Proto::carries_flags) {
    host.channels = to_many ? 16 : 32;
    host.slot_bytes = Index{8} << 10;
    network.channels = to_many ? 4 : 8;
    network.slot_bytes = Index{32} << 10;
    network.channel_bytes = Index{32} << 10;
    if constexpr (Algo::most_wires(64) > 8 && Algo::wires > 2) {
      // Pat's short shares take a slot each: the same memory in more of them.
      network.slot_count = 64;
      network.slot_bytes = Index{4} << 10;
      network.chunk_steps = 16;
    }
  } else {
    host.channels = to_many ? 8 : 16;
    network.channels = to_many ? 2 : 8;
    network.slot_bytes = Index{256} << 10;
    network.channel_bytes = Index{128} << 10;
  }
  // Every ring of the topology has NICs of its own: each of them once, or equally often.
  const int rings = ring_count < 16 ? ring_count : 16;
  if (!to_many) network.channels = (network.channels + rings - 1) / rings * rings;
  return {{default_device_plan<Algo, Proto>(), host, network}};
}

/// Over wires: `given`, or what suits the communicator and the settings.
template <class Algo, class Proto>
Result<Plans> wire_plans(const Communicator& comm, const std::optional<Plan>& given) {
  int neighbours = 1;
  for (int r = 1; r < comm.ranks(); ++r) {
    neighbours += int(comm.peer(r).host_hash == comm.peer(0).host_hash);
  }
  Plans plans = given                ? Plans::same(*given)
                : comm.device() >= 0 ? default_device_plans<Algo, Proto>(comm.ring_count())
                                     : default_host_plans<Proto>(neighbours);
  // What a GPU's lanes move at once: a block 16 bytes each, a warp a tile with its flags.
  if (comm.device() >= 0) plans.least_slot_bytes = Proto::carries_flags ? 2048 : 512 * 16;
  if (given) return plans;
  for (Plan& plan : plans.by_through) {
    CCL_TRY(plan, with_buffer_setting(plan, Proto::name));
  }
  if constexpr (requires { Algo::serves_pairs; }) {
    Plan& network = plans.by_through[int(Through::network)];
    CCL_TRY(network, with_net_channels(network));
  }
  return plans;
}

/// Over a peer view. A slot of the plan is one of the two halves of this rank's scratch. Copy
/// engines want long copies: they take half of the default budget, or nothing for windows.
template <class Algo>
Plans peer_plans(const std::optional<Plan>& given) {
  if (given) return Plans::same(*given);
  Plan plan;
  plan.slot_count = 2;
  plan.slot_bytes = Index{16} << 20;
  if constexpr (MovesByCopies<Algo>) plan.slot_bytes = Algo::stages ? Index{32} << 20 : 4096;
  return Plans::same(plan);
}

}  // namespace ccl::detail
