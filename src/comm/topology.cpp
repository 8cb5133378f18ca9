#include <ccl/comm/log.hpp>
#include <ccl/detail/runtime/settings.hpp>
#include <ccl/transport/any_of.hpp>
#include <ccl/transport/p2p.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "base/numa.hpp"
#include "comm/part_rules.hpp"
#include "comm/rank_results.hpp"
#include "comm/state.hpp"
#include "gpu/devices.hpp"
#include "gpu/driver.hpp"
#include "gpu/memory.hpp"
#include "topo/graph/p2p_path.hpp"
#include "topo/search/place_ranks.hpp"
#include "topo/search/relays.hpp"

namespace ccl::detail {
namespace {

/// True if the topology cannot change the order of ranks: all are CPU ranks of one NUMA node.
/// All ranks get the same result.
bool all_alike(const CommState& state) {
  const PeerInfo& first = state.identity.peers()[0];
  const auto& peers = state.identity.peers();
  return std::all_of(peers.begin(), peers.end(), [&](const PeerInfo& p) {
    return p.device < 0 && p.host_hash == first.host_hash && p.numa == first.numa &&
           p.looks_closely == 0;
  });
}

/// Sets for each rank of this host whether P2P is allowed, and whether RDMA is better.
void judge_ways(CommState& state, const topo::RankPlacement& placement,
                const std::vector<topo::SearchPlace>& places) {
  if (!state.device.gpu || !placement.known) return;
  const auto place_of = [&](int rank) {
    for (std::size_t p = 0; p < places.size(); ++p) {
      const auto& ranks = places[p].ranks;
      if (std::find(ranks.begin(), ranks.end(), rank) != ranks.end()) return int(p);
    }
    return -1;
  };
  const int mine = placement.graph.gpu_of_rank(place_of(state.identity.rank()));
  for (const PeerInfo& peer : state.identity.peers()) {
    const int place = place_of(peer.rank);
    const int theirs = place < 0 ? -1 : placement.graph.gpu_of_rank(place);
    if (theirs < 0 || theirs == mine) continue;
    const auto p2p =
        topo::check_p2p(placement.graph, placement.paths, placement.rules, mine, theirs);
    PeerInfo::LinkPreference& way = state.identity.way_to(peer.rank);
    way.avoid_p2p = p2p.allowed ? 0 : 1;
    way.prefer_rdma = topo::net_beats_p2p(placement.graph, placement.paths, mine, theirs) ? 1 : 0;
    if (!p2p.allowed) {
      log_info(LogPart::graph, "rank {} to {}: not by P2P ({})", state.identity.rank(), peer.rank,
               p2p.why);
    }
  }
}

/// Notes which GPUs of this host NVLink joins. A process that sees its own GPU only, as in jobs
/// with CUDA_VISIBLE_DEVICES, cannot ask the driver.
void note_nvlinks(const topo::RankPlacement& placement,
                  const std::vector<topo::SearchPlace>& places) {
  for (std::size_t p = 0; p < places.size(); ++p) {
    for (std::size_t q = 0; q < p; ++q) {
      const int a = placement.graph.gpu_of_rank(int(p)), b = placement.graph.gpu_of_rank(int(q));
      if (a < 0 || b < 0 || placement.paths.wired(a, b).type > topo::PathType::nvl) continue;
      note_nvlink(places[p].key, places[q].key);
    }
  }
}

/// Node of this rank's GPU; -1: it has none.
int gpu_node_of(const CommState& state, const topo::RankPlacement& placement,
                const std::vector<topo::SearchPlace>& places) {
  if (!state.device.gpu) return -1;
  for (std::size_t p = 0; p < places.size(); ++p) {
    const auto& ranks = places[p].ranks;
    if (std::find(ranks.begin(), ranks.end(), state.identity.rank()) != ranks.end()) {
      return placement.graph.gpu_of_rank(int(p));
    }
  }
  return -1;
}

/// NIC of a CPU rank of a job on several hosts, if all NICs of this host are at one NUMA node of
/// several; -1: none. `ignores_bounds`: also for a process that is bound to a node, whose threads
/// and memory are there.
int served_nic(const CommState& state, const topo::RankPlacement& placement, bool ignores_bounds) {
  const topo::Graph& graph = placement.graph;
  const auto& peers = state.identity.peers();
  const PeerInfo& me = peers[std::size_t(state.identity.rank())];
  const bool one_host = std::all_of(peers.begin(), peers.end(), [&](const PeerInfo& peer) {
    return peer.host_hash == me.host_hash;
  });
  if (state.device.gpu || one_host || graph.of(topo::NodeType::cpu).size() < 2) return -1;
  const std::vector<int> allowed = allowed_cpus();
  for (const int cpu : graph.of(topo::NodeType::cpu)) {
    const std::vector<int> cores = topo::cores_of(graph.nodes[std::size_t(cpu)].cpu.affinity);
    if (!ignores_bounds && std::ranges::includes(cores, allowed)) return -1;
  }
  int nic = -1, at = -1;
  for (const int net : graph.of(topo::NodeType::net)) {
    const int cpu = topo::local_cpu(graph, placement.paths, net);
    if (cpu < 0 || (nic >= 0 && cpu != at)) return -1;
    nic = net;
    at = cpu;
  }
  return nic;
}

/// Sets the NUMA node for buffers that serve the rank's GPU, or the NICs of a CPU rank, and the
/// CPUs for threads: those of the node on which this thread may run. If it may run on none of them,
/// the system's choice stays.
Result<void> choose_cpus(CommState& state, const topo::RankPlacement& placement, int gpu) {
  CCL_TRY(const bool ignores_bounds, setting_flag("IGNORE_CPU_AFFINITY"));
  const int served = gpu >= 0 ? gpu : served_nic(state, placement, ignores_bounds);
  if (served < 0) return {};
  const int node = topo::local_cpu(placement.graph, placement.paths, served);
  const std::int64_t number = node < 0 ? -1 : placement.graph.nodes[std::size_t(node)].id;
  if (number <= std::numeric_limits<int>::max()) state.device.numa = int(number);
  const std::vector<int> allowed = allowed_cpus();
  std::vector<int> cpus =
      topo::cores_of(topo::cpu_affinity(placement.graph, placement.paths, served));
  if (!ignores_bounds) {
    std::erase_if(
        cpus, [&](int cpu) { return !std::binary_search(allowed.begin(), allowed.end(), cpu); });
  }
  log_info(LogPart::graph, "rank {}: threads and buffers of its {} on {}", state.identity.rank(),
           gpu >= 0 ? "GPU" : "NICs",
           cpus.empty() ? std::string("any CPU") : fmt::format("CPUs {}", fmt::join(cpus, " ")));
  state.proxy.run_on(cpus);
  // Threads of a program that create wires of CPU ranks touch memory inside the host, too.
  if (gpu >= 0) state.device.cpus = std::move(cpus);
  return {};
}

/// Bits of `GpuReport::sees`: GPUs on which this process may keep memory for its rank.
Result<std::uint64_t> seen_gpus(const CommState& state) {
  CCL_TRY(const bool handles, setting_flag("CUMEM_ENABLE"));
  CCL_TRY(const CudaDriver* const cuda, cuda_driver());
  std::uint64_t seen = 0;
  int place = 0;
  const auto& peers = state.identity.peers();
  const PeerInfo& me = peers[std::size_t(state.identity.rank())];
  for (const PeerInfo& peer : peers) {
    if (peer.host_hash != me.host_hash) continue;
    CUdevice device = -1;
    const bool own = peer.rank == me.rank;
    const bool sees =
        own || (handles && cuda->device_get_by_pci_bus_id(
                               &device, bus_id_text(peer.bus_id).c_str()) == CUDA_SUCCESS);
    if (sees && place < std::numeric_limits<std::uint64_t>::digits) {
      seen |= std::uint64_t{1} << place;
    }
    ++place;
  }
  return seen;
}

/// True if this rank may lend memory of its GPU to the other processes of its host, as a trial has
/// shown. Nothing is tried where nobody would relay over it.
bool can_lend(const CommState& state) {
  const auto& peers = state.identity.peers();
  const PeerInfo& me = peers[std::size_t(state.identity.rank())];
  bool other_processes = false, other_hosts = false;
  for (const PeerInfo& peer : peers) {
    other_hosts = other_hosts || peer.host_hash != me.host_hash;
    if (peer.host_hash != me.host_hash || peer.pid_hash == me.pid_hash) continue;
    if (peer.memory_domain != me.memory_domain) return false;
    other_processes = true;
  }
  const auto disabled = setting_flag("PXN_DISABLE");
  const auto gpu_memory = setting_integer("IB_GPU_MEMORY");
  if (!disabled || *disabled || !gpu_memory || *gpu_memory == 0) return false;
  if (!other_processes || !other_hosts || !state.device.gpu) return false;
  const auto memory = GpuMemory::allocate(state.device.gpu, 1);
  if (!memory || (*memory)->name().handles == 0) return false;
  const auto shared = (*memory)->share();
  if (!shared) {
    log_info(LogPart::graph, "rank {} lends no memory of its GPU ({})", me.rank,
             shared.error().what);
  }
  return shared.has_value();
}

/// The NVLink domain in which this rank shares memory of its GPU with ranks of other hosts; 0:
/// there are none, the settings forbid it, or the driver does (IMEX).
std::uint64_t reached_domain(const CommState& state) {
  const PeerInfo& me = state.identity.peers()[std::size_t(state.identity.rank())];
  bool any = false;
  for (const PeerInfo& peer : state.identity.peers()) {
    if (peer.host_hash == me.host_hash || !same_fabric(peer, me)) continue;
    any = true;
    if (!P2pTransport::can_connect(me, peer) || !P2pTransport::can_connect(peer, me)) return 0;
  }
  if (!any || !state.device.gpu || !may_choose(P2pTransport::name)) return 0;
  const auto memory = GpuMemory::allocate(state.device.gpu, 1);
  return memory && (*memory)->name().handles == 2 ? me.fabric : 0;
}

/// Report of this rank on its GPU. A rank whose driver fails still takes part in the all-gather.
topo::GpuReport own_report(const CommState& state) {
  const PeerInfo& me = state.identity.peers()[std::size_t(state.identity.rank())];
  topo::GpuReport report = topo::sight_of(me.bus_id);
  if (const auto seen = seen_gpus(state)) report.sees = *seen;
  report.lends = can_lend(state) ? 1 : 0;
  return report;
}

}  // namespace

Result<void> arrange_ranks(CommState& state) {
  const int rank = state.identity.rank(), ranks = state.identity.ranks();
  const auto& peers = state.identity.peers();
  Bootstrap* const bootstrap = state.rendezvous.bootstrap();
  state.identity.set_arrangement(topo::Arrangement::in_order(ranks));
  if (all_alike(state)) return {};
  const auto began = std::chrono::steady_clock::now();
  std::vector<topo::GpuReport> sights(state.device.gpu ? std::size_t(ranks) : 0);
  if (state.device.gpu && ranks > 1) {
    sights[std::size_t(rank)] = own_report(state);
    CCL_CHECK(bootstrap->all_gather(sights.data(), Index{sizeof(topo::GpuReport)}));
    CCL_CHECK(check_gathered(
        state, sights, [](const topo::GpuReport& of, int) { return topo::wrong_report(of); }));
  } else if (ranks == 1) {
    if (peers[0].looks_closely == 0) return {};
    if (state.device.gpu) sights[0] = topo::sight_of(peers[0].bus_id);
  }
  const std::vector<topo::SearchPlace> places = topo::places_of(peers, rank);
  const auto look = [&]() -> Result<topo::Machine> {
    CCL_TRY(const topo::RankPlacement placement, topo::place_ranks(peers, sights, rank, places));
    if (state.device.gpu) note_nvlinks(placement, places);
    judge_ways(state, placement, places);
    const int gpu = gpu_node_of(state, placement, places);
    state.device.lends = topo::lends_for_relays(placement, peers, sights, rank, places, gpu);
    CCL_TRY(auto nics, topo::nics_of(placement, gpu));
    state.identity.set_nics(std::move(nics));
    CCL_CHECK(choose_cpus(state, placement, gpu));
    return topo::channels_of(placement, places, rank, ranks, rank == 0);
  };
  auto machine = look();
  // A rank that fails still takes part in the all-gather, because the others wait for it.
  std::vector<topo::MachineShare> all(static_cast<std::size_t>(ranks));
  if (machine) {
    machine->fabric = reached_domain(state);
    all[std::size_t(rank)] = topo::share_of(*machine, rank);
  }
  if (ranks > 1) {
    CCL_CHECK(bootstrap->all_gather(all.data(), Index{sizeof(topo::MachineShare)}));
    CCL_CHECK(check_gathered(state, all, [ranks](const topo::MachineShare& of, int) {
      return topo::wrong_share(of, ranks);
    }));
  }
  const auto blind = std::find_if(
      all.begin(), all.end(), [](const topo::MachineShare& share) { return share.machine < 0; });
  if (blind != all.end()) {
    Result<void> mine;
    if (!machine) mine = fail(std::move(machine).error());
    if (ranks == 1) return mine;
    return all_agree(state, "looking at the topology", mine);
  }
  std::string wrong;
  std::vector<topo::Machine> machines = topo::machines_of(all, wrong);
  if (!wrong.empty()) log_warn(LogPart::graph, "{}", wrong);
  CCL_TRY(auto arrangement, topo::Arrangement::of(std::move(machines), ranks));
  state.identity.set_arrangement(std::move(arrangement));
  if (rank == 0) {
    const topo::Arrangement& made = state.identity.arrangement();
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - began;
    log_info(LogPart::graph, "{} ranks on {} machines, {} rings, in {:.1f} ms; the first: {}",
             ranks, made.machine_count(), made.ring_count(), took.count(),
             fmt::join(made.ring(0), " "));
  }
  return {};
}

}  // namespace ccl::detail
