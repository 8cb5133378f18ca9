#include "topo/search/place_ranks.hpp"

#include <ccl/comm/log.hpp>
#include <ccl/detail/runtime/settings.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <string>

#include "gpu/devices.hpp"

namespace ccl::topo {
namespace {

/// Detection once per process, for each set of GPUs: communicators come and go, machines stay.
Result<LoadedGraph> known_machine(const DiscoverOptions& options) {
  static std::mutex mutex;
  static std::map<std::string, LoadedGraph> seen;
  CCL_TRY(std::string key, detail::setting_text("TOPO_FILE"));
  for (const SeenGpu& gpu : *options.gpus) {
    key += fmt::format(" {} {}", gpu.bus_id, gpu.links.size());
  }
  const std::lock_guard lock{mutex};
  const auto known = seen.find(key);
  if (known != seen.end()) return known->second;
  CCL_TRY(LoadedGraph loaded, configured_machine(options));
  for (const Repair& repair : loaded.repairs) log_info(LogPart::graph, "{}", repair.what);
  return seen.emplace(std::move(key), std::move(loaded)).first->second;
}

/// Orders of places become orders of ranks: those of one place stand together.
void expand(ChannelGraph& graph, const std::vector<Place>& places) {
  for (ChannelOrder& order : graph.channels) {
    std::vector<int> ranks;
    for (const int place : order.ranks) {
      ranks.insert(ranks.end(), places[place].ranks.begin(), places[place].ranks.end());
    }
    order.ranks = std::move(ranks);
  }
}

/// Seats for places of CPU ranks: at their NUMA node or, where a file describes a machine with
/// GPUs, at these in turn, so that its shape can be tried without them.
void seat_on_cpus(Graph& graph, const std::vector<Place>& places) {
  const std::vector<int> gpus = graph.of(NodeType::gpu), cpus = graph.of(NodeType::cpu);
  for (const int gpu : gpus) graph.nodes[gpu].gpu.rank = -1;
  if (gpus.size() >= places.size()) {
    for (std::size_t p = 0; p < places.size(); ++p) {
      graph.nodes[gpus[p]].gpu.rank = static_cast<int>(p);
    }
    return;
  }
  for (std::size_t p = 0; p < places.size(); ++p) {
    int at = cpus[p * cpus.size() / places.size()];
    for (const int cpu : cpus) {
      if (graph.nodes[cpu].id == places[p].key) at = cpu;
    }
    add_cpu_rank(graph, at, static_cast<int>(p));
  }
}

bool file_has_gpus() {
  const auto given = detail::setting_text("TOPO_FILE");
  if (!given || given->empty()) return false;
  DiscoverOptions without;
  without.gpus.emplace();
  const auto machine = known_machine(without);
  return machine && !machine->graph.of(NodeType::gpu).empty();
}

}  // namespace

bool all_alike(const Graph& graph, const Paths& paths) {
  const std::vector<int> gpus = graph.of(NodeType::gpu);
  const Path* first = nullptr;
  for (const int a : gpus) {
    for (const int b : gpus) {
      if (a == b) continue;
      const Path& path = paths.at(a, b);
      if (first == nullptr) first = &path;
      if (path.type != PathType::nvl || path.bw != first->bw) return false;
    }
  }
  return true;
}

GpuSight sight_of(std::int64_t bus_id) {
  GpuSight sight;
  const auto gpu = nvml_gpu(ccl::detail::bus_id_text(bus_id));
  if (!gpu) return sight;
  sight.seen = 1;
  sight.dev = gpu->dev;
  sight.sm = gpu->sm;
  sight.mig = gpu->mig ? 1 : 0;
  sight.c2c_links = gpu->c2c_links;
  sight.c2c_mbps = gpu->c2c_mbps;
  for (const SeenLink& link : gpu->links) {
    std::int64_t remote = -1;
    if (!link.remote_bus_id.empty() && !parse_bus_id(link.remote_bus_id, remote)) remote = -1;
    const int n = std::min(sight.link_count, GpuSight::most_links - 1);
    sight.links[n].remote = remote;
    sight.links[n].count += link.count;
    sight.link_count = n + 1;
  }
  return sight;
}

std::vector<Place> places_of(std::span<const PeerInfo> peers, int rank) {
  const PeerInfo& me = peers[static_cast<std::size_t>(rank)];
  const bool spread = me.device < 0 && file_has_gpus();
  std::map<std::int64_t, Place> by_key;
  std::int64_t local = 0;
  for (const PeerInfo& peer : peers) {
    if (peer.host_hash != me.host_hash) continue;
    const std::int64_t key = spread ? local : peer.device < 0 ? peer.numa : peer.bus_id;
    ++local;
    Place& place = by_key[key];
    place.key = key;
    place.ranks.push_back(peer.rank);
  }
  std::vector<Place> places;
  for (auto& [key, place] : by_key) places.push_back(std::move(place));
  return places;
}

Result<Seated> seat_ranks(std::span<const PeerInfo> peers, std::span<const GpuSight> sights,
                          int rank, const std::vector<Place>& places) {
  Seated seated;
  DiscoverOptions options;
  options.gpus.emplace();
  const bool on_gpus = peers[static_cast<std::size_t>(rank)].device >= 0;
  if (on_gpus) {
    for (const Place& place : places) {
      const auto first = static_cast<std::size_t>(place.ranks.front());
      const GpuSight& sight = sights[first];
      seated.known = seated.known && sight.seen != 0;
      SeenGpu gpu;
      gpu.bus_id = ccl::detail::bus_id_text(place.key);
      gpu.dev = sight.seen != 0 ? sight.dev : peers[first].device;
      gpu.sm = peers[first].compute_capability;
      gpu.mig = sight.mig != 0;
      gpu.c2c_links = sight.c2c_links;
      gpu.c2c_mbps = sight.c2c_mbps;
      for (int l = 0; l < sight.link_count && l < GpuSight::most_links; ++l) {
        const auto& link = sight.links[l];
        gpu.links.push_back(
            {link.remote < 0 ? std::string() : ccl::detail::bus_id_text(link.remote), link.count});
      }
      options.gpus->push_back(std::move(gpu));
    }
  }
  CCL_TRY(LoadedGraph loaded, known_machine(options));
  seated.graph = std::move(loaded.graph);
  if (!on_gpus) {
    seat_on_cpus(seated.graph, places);
  } else {
    for (const int gpu : seated.graph.of(NodeType::gpu)) seated.graph.nodes[gpu].gpu.rank = -1;
    for (std::size_t p = 0; p < places.size(); ++p) {
      int seat = -1;
      for (const int gpu : seated.graph.of(NodeType::gpu)) {
        if (seated.graph.nodes[gpu].id == places[p].key) seat = gpu;
      }
      if (seat < 0) {
        return fail(Errc::bad_setting,
                    fmt::format("GPU {} of rank {} is not in the topology (CCL_TOPO_FILE is of "
                                "another machine?); give this machine's, or none",
                                ccl::detail::bus_id_text(places[p].key), places[p].ranks.front()));
      }
      seated.graph.nodes[seat].gpu.rank = static_cast<int>(p);
    }
  }
  CCL_TRY(seated.rules, configured_rules());
  // GPUs of other communicators would only cost time.
  std::vector<char> keep(seated.graph.nodes.size(), 1);
  for (const int gpu : seated.graph.of(NodeType::gpu)) {
    keep[gpu] = seated.graph.nodes[gpu].gpu.rank >= 0 ? 1 : 0;
  }
  seated.graph = select(seated.graph, keep);
  seated.paths = compute_paths(seated.graph, seated.rules);
  return seated;
}

Result<Machine> channels_of(const Seated& seated, const std::vector<Place>& places, int rank,
                            int ranks, bool dump) {
  int mine = 0, here = 0;
  for (std::size_t p = 0; p < places.size(); ++p) {
    here += static_cast<int>(places[p].ranks.size());
    if (std::find(places[p].ranks.begin(), places[p].ranks.end(), rank) != places[p].ranks.end()) {
      mine = static_cast<int>(p);
    }
  }
  const int seats = static_cast<int>(places.size()) + (here < ranks ? 1 : 0);
  const Graph graph = trim(seated.graph, seated.paths, mine, seats);
  const Paths paths = compute_paths(graph, seated.rules);
  CCL_TRY(ChannelPlan plan, configured_channels(graph, paths, seats));
  if (dump) {
    CCL_CHECK(dump_machine(seated.graph));
    CCL_CHECK(dump_channels(plan, graph));
  }
  Machine machine;
  bool on_cpu = true;
  for (const int gpu : graph.of(NodeType::gpu)) {
    const auto& there = places[graph.nodes[gpu].gpu.rank].ranks;
    machine.ranks.insert(machine.ranks.end(), there.begin(), there.end());
    on_cpu = on_cpu && graph.nodes[gpu].gpu.on_cpu;
  }
  std::sort(machine.ranks.begin(), machine.ranks.end());
  machine.even = on_cpu || !seated.known || all_alike(graph, paths);
  machine.ring = std::move(plan.ring);
  machine.tree = std::move(plan.tree);
  expand(machine.ring, places);
  expand(machine.tree, places);
  return machine;
}

}  // namespace ccl::topo
