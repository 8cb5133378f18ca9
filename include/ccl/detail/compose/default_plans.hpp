#pragma once

#include <ccl/algo/cost.hpp>
#include <ccl/algo/traits.hpp>
#include <ccl/comm/communicator.hpp>
#include <ccl/detail/base/selection.hpp>
#include <ccl/detail/runtime/plans.hpp>
#include <ccl/detail/runtime/transport_table.hpp>
#include <ccl/transport/transport.hpp>
#include <ccl/types/plan.hpp>

#include <optional>

namespace ccl::detail {

/// Default plan on CPU lanes. Its slots fit the caches, because the lanes overlap only data of one
/// wire's ring that the caches hold. Two ranks of a host have one wire in each, and slots twice as
/// long: calls of 256 KiB to 2 MiB took 0.65 to 1 of the time. Some calls of four ranks took longer
/// (docs/validation/shared_memory_slots.md). Protocols with flags were not measured.
///
/// A proxy makes system calls for each slot, so it gets large slots: over TCP, 1 MiB took 1.4 times
/// as long with cache-sized ones. More than two ranks of a host (`neighbors`) fill its caches with
/// large slots.
template <class Proto>
Plans default_host_plans(int neighbors) {
  const auto with_slots = [](Index most) {
    Plan plan;
    plan.slot_bytes = Proto::default_slot_bytes < most ? Proto::default_slot_bytes : most;
    return plan;
  };
  Plan network = with_slots(Index{neighbors > 2 ? 256 : 512} << 10);
  network.slot_count = 4;
  const bool is_long = neighbors <= 2 && !Proto::carries_flags;
  Plans plans = Plans::same(with_slots(Index{is_long ? 128 : 64} << 10));
  plans.by_medium[int(Medium::network)] = network;
  return plans;
}

/// True if a rank has wires to many peers, not to neighbors alone.
template <class Algo>
inline constexpr bool to_many = Algo::max_wires(64) > 8;

/// Default plan on a GPU, with enough channels for `blocks` blocks. All plans of a protocol take
/// the same memory.
///
/// Packets with flags: measured on H200. Trees of LL128 fork: for 16 MiB, chunks of one slot took
/// 140 us and chunks of two slots 145 us.
///
/// Simple: a block holds four groups, or two of a tree. Few groups get long slots, because each
/// slot costs a release (docs/validation/kernels.md).
template <class Algo, class Proto>
Plan default_device_plan(int blocks) {
  constexpr bool forks = Algo::wires > 2;
  Plan plan;
  if (Proto::carries_flags) {
    plan.channels = to_many<Algo> ? 128 : forks ? 256 : 512;
    plan.slot_bytes = 4096;
    plan.chunk_steps = forks && !to_many<Algo> ? 1 : 2;
  } else {
    constexpr int groups = forks ? 2 : 4, most = to_many<Algo> ? 128 : 128 * groups;
    constexpr Index row_bytes = Index{to_many<Algo> ? 4 : 8} << 20;  // a slot of each channel
    plan.channels = 32;
    while (plan.channels < groups * blocks && plan.channels < most) plan.channels *= 2;
    plan.slot_count = to_many<Algo> ? 8 : 4;
    plan.slot_bytes = row_bytes / plan.channels;
    plan.chunk_steps = forks ? 1 : 2;
  }
  return plan;
}

/// Default plan by medium. A few channels saturate PCIe. A few threads carry the channels of a
/// network, and each channel costs a connection. Larger steps cost fewer calls. `blocks`: maximum
/// blocks of a launch.
///
/// With packets (LL, LL128), another channel, and so another thread, pays off from 8 KiB on. For
/// GPUs over TCP, send_recv of 16 KiB takes 21 us, and 27 us with 32 KiB.
///
/// Over RDMA, a ring or tree gets the channels that keep up with its NICs (`channels_of_way`). They
/// share the memory of the others.
template <class Algo, class Proto>
Plans default_device_plans(const NetworkFacts& between, const HostFacts& machine, int blocks) {
  Plan host = default_device_plan<Algo, Proto>(blocks);
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
      // Pat has short shares that take one slot each, so the same memory is divided into more
      // slots.
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
  // Each ring and tree of the topology has its own NICs. The plan uses each once, or all equally
  // often. Every tree has two channels, of which one is its twin.
  const int rings = between.rings < 32 ? between.rings : 32;
  const int ways = Algo::wires > 2 ? 2 * rings : rings;
  // Each channel to a network that reduces is a group of its switches, which have few.
  if (!to_many<Algo> && !ReducesInNetwork<Algo>) {
    network.channels = (network.channels + ways - 1) / ways * ways;
    const int wide = ways * channels_of_way(packing_of<Proto>(), ways, between, machine, blocks);
    if (wide > network.channels) {
      network.slot_bytes = network.slot_bytes * network.channels / wide / 128 * 128;
      network.channels = wide;
    }
  }
  return {{default_device_plan<Algo, Proto>(blocks), host, network}};
}

/// Inputs of plans over wires.
struct WirePlansOf {
  const char* proto;
  bool carries_flags, to_many, serves_pairs;
  Plans (*on_host)(int neighbors);
  Plans (*on_device)(const NetworkFacts& between, const HostFacts& machine, int blocks);
};
/// Returns `given`, or a plan that suits the communicator, the transport and the settings.
Result<Plans> wire_plans(const WirePlansOf& of, const Communicator& comm, const TransportTable& by,
                         const std::optional<Plan>& given);
template <class Algo, class Proto>
Result<Plans> wire_plans(const Communicator& comm, const TransportTable& by,
                         const std::optional<Plan>& given) {
  constexpr bool serves_pairs = requires { Algo::serves_pairs; };
  return wire_plans({Proto::name, Proto::carries_flags, to_many<Algo>, serves_pairs,
                     default_host_plans<Proto>, default_device_plans<Algo, Proto>},
                    comm, by, given);
}

/// Default plan over a peer view. A slot of the plan is one of the two halves of this rank's
/// scratch. Copy engines need long copies: they use half of the default budget, or none for
/// windows.
template <class Algo>
Result<Plans> peer_plans(const Communicator&, const TransportTable&,
                         const std::optional<Plan>& given) {
  if (given) return Plans::same(*given);
  Plan plan;
  plan.slot_count = 2;
  plan.slot_bytes = Index{16} << 20;
  if constexpr (MovesByCopies<Algo>) plan.slot_bytes = Algo::stages ? Index{32} << 20 : 4096;
  return Plans::same(plan);
}

}  // namespace ccl::detail
