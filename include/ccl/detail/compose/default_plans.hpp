#pragma once

#include <ccl/algo/traits.hpp>
#include <ccl/comm/communicator.hpp>
#include <ccl/detail/base/selection.hpp>
#include <ccl/detail/runtime/plans.hpp>
#include <ccl/transport/transport.hpp>
#include <ccl/types/plan.hpp>

#include <optional>

namespace ccl::detail {

/// On CPU lanes. Cache-sized slots: what the CPU's caches hold of one wire's ring is what it can
/// hide. Where a proxy moves them, each costs system calls: over TCP, 1 MiB took 1.4 times as long
/// in such. More than two ranks of a host (`neighbors`) fill its caches with large ones.
template <class Proto>
Plans default_host_plans(int neighbors) {
  const auto with_slots = [](Index most) {
    Plan plan;
    plan.slot_bytes = Proto::default_slot_bytes < most ? Proto::default_slot_bytes : most;
    return plan;
  };
  Plan network = with_slots(Index{neighbors > 2 ? 256 : 512} << 10);
  network.slot_count = 4;
  Plans plans = Plans::same(with_slots(Index{64} << 10));
  plans.by_medium[int(Medium::network)] = network;
  return plans;
}

/// To many peers, not to neighbors alone.
template <class Algo>
inline constexpr bool to_many = Algo::max_wires(64) > 8;

/// Enough channels to fill a GPU; measured on H200. Of Simple, longer slots rather than more of
/// them: all-reduce of 1 GiB by Ring on 4 H200 took 4726 us with 8 of 32 KiB, 4427 with 4 of 64
/// KiB, 4429 with 8, and 4413 with 4 of 128 KiB; by Tree 256 MiB took 1963 us with 8 of 8 KiB, 1812
/// with 4 of 16 KiB. Trees of LL128 fork: chunks of one slot took 140 us for 16 MiB, those of two
/// 145.
template <class Algo, class Proto>
Plan default_device_plan() {
  constexpr bool forks = Algo::wires > 2;
  Plan plan;
  if (Proto::carries_flags) {
    plan.channels = to_many<Algo> ? 128 : forks ? 256 : 512;
    plan.slot_bytes = 4096;
    plan.chunk_steps = forks && !to_many<Algo> ? 1 : 2;
  } else {
    plan.channels = to_many<Algo> ? 32 : forks ? 256 : 128;
    plan.slot_count = to_many<Algo> ? 8 : 4;
    plan.slot_bytes = Index{to_many<Algo> ? 128 : forks ? 32 : 64} << 10;
    plan.chunk_steps = forks ? 1 : 2;
  }
  return plan;
}

/// PCIe is full with a few channels. A few threads carry a network's, and each costs a connection;
/// larger steps cost fewer calls, but of packets 8 KiB are worth another channel, and so another
/// thread (GPUs over TCP, send_recv of 16 KiB: 21 us, with 32 KiB 27). `ring_count`: of the
/// topology.
template <class Algo, class Proto>
Plans default_device_plans(int ring_count) {
  Plan host = default_device_plan<Algo, Proto>();
  host.slot_count = 8;
  host.chunk_steps = Algo::wires > 2 && !Proto::carries_flags ? 1 : 2;
  Plan network = host;
  if (Proto::carries_flags) {
    host.channels = to_many<Algo> ? 16 : 32;
    host.slot_bytes = Index{8} << 10;
    network.channels = to_many<Algo> ? 4 : 8;
    network.slot_bytes = Index{32} << 10;
    network.channel_bytes = Index{8} << 10;
    if constexpr (to_many<Algo> && Algo::wires > 2) {
      // Pat's short shares take a slot each: the same memory in more of them.
      network.slot_count = 64;
      network.slot_bytes = Index{4} << 10;
      network.chunk_steps = 16;
    }
  } else {
    host.channels = to_many<Algo> ? 8 : 16;
    host.slot_bytes = Index{128} << 10;
    network.channels = to_many<Algo> ? 2 : 8;
    network.slot_bytes = Index{256} << 10;
    network.channel_bytes = Index{128} << 10;
  }
  // Every ring of the topology has NICs of its own: each of them once, or equally often.
  const int rings = ring_count < 16 ? ring_count : 16;
  if (!to_many<Algo>) network.channels = (network.channels + rings - 1) / rings * rings;
  return {{default_device_plan<Algo, Proto>(), host, network}};
}

/// What plans over wires depend on.
struct WirePlansOf {
  const char* proto;
  bool carries_flags, to_many, serves_pairs;
  Plans (*on_host)(int neighbors);
  Plans (*on_device)(int ring_count);
};
/// `given`, or what suits the communicator and the settings.
Result<Plans> wire_plans(const WirePlansOf& of, const Communicator& comm,
                         const std::optional<Plan>& given);
template <class Algo, class Proto>
Result<Plans> wire_plans(const Communicator& comm, const std::optional<Plan>& given) {
  constexpr bool serves_pairs = requires { Algo::serves_pairs; };
  return wire_plans({Proto::name, Proto::carries_flags, to_many<Algo>, serves_pairs,
                     default_host_plans<Proto>, default_device_plans<Algo, Proto>},
                    comm, given);
}

/// Over a peer view. A slot of the plan is one of the two halves of this rank's scratch. Copy
/// engines want long copies: they take half of the default budget, or nothing for windows.
template <class Algo>
Result<Plans> peer_plans(const Communicator&, const std::optional<Plan>& given) {
  if (given) return Plans::same(*given);
  Plan plan;
  plan.slot_count = 2;
  plan.slot_bytes = Index{16} << 20;
  if constexpr (MovesByCopies<Algo>) plan.slot_bytes = Algo::stages ? Index{32} << 20 : 4096;
  return Plans::same(plan);
}

}  // namespace ccl::detail
