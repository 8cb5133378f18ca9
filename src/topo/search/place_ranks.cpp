#include "topo/search/place_ranks.hpp"

#include <ccl/comm/log.hpp>
#include <ccl/detail/runtime/settings.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <mutex>
#include <set>
#include <string>

#include "base/field_check.hpp"
#include "base/fork_mutex.hpp"
#include "base/made_once.hpp"
#include "gpu/devices.hpp"
#include "settings/report.hpp"
#include "topo/search/gpu_links.hpp"
#include "topo/search/relays.hpp"

namespace ccl::topo {
namespace {

struct KnownMachine {
  LoadedGraph loaded;
  bool in_file = false;  // the file of CCL_TOPO_FILE describes its GPUs, so their links are known
};

/// The machine with these GPUs. It is detected once per process for each set of GPUs: communicators
/// change, machines do not.
Result<KnownMachine> known_machine(std::vector<DiscoveredGpu> gpus) {
  struct Machines {
    std::map<std::string, KnownMachine> seen;
    ccl::detail::ForkMutex mutex{[this] { ccl::detail::renew(seen); }};
  };
  static constinit ccl::detail::MadeOnce<Machines> machines;
  auto& [seen, mutex] = machines.get();
  CCL_TRY(const std::string file, configured_file());
  std::string key = file;
  for (const DiscoveredGpu& gpu : gpus) {
    key += fmt::format(" {} {} {}", gpu.bus_id, gpu.dev, gpu.links.size());
  }
  const std::lock_guard lock{mutex};
  const auto known = seen.find(key);
  if (known != seen.end()) return known->second;
  DiscoverOptions options;
  options.gpus = std::move(gpus);
  KnownMachine machine;
  CCL_TRY(machine.loaded, configured_machine(options));
  for (const Repair& repair : machine.loaded.repairs) log_info(LogPart::graph, "{}", repair.what);
  if (!file.empty()) {
    const auto alone = load_graph(file);
    machine.in_file = alone && !alone->graph.of(NodeType::gpu).empty();
  }
  return seen.emplace(std::move(key), std::move(machine)).first->second;
}

/// Turns orders of places into orders of ranks: the ranks of one place are adjacent.
void expand(ChannelGraph& graph, const std::vector<SearchPlace>& places) {
  for (ChannelOrder& order : graph.channels) {
    std::vector<int> ranks;
    for (const int place : order.ranks) {
      ranks.insert(ranks.end(), places[place].ranks.begin(), places[place].ranks.end());
    }
    order.ranks = std::move(ranks);
  }
}

/// Nodes for places of CPU ranks: at their NUMA node or, if a file describes a machine with GPUs,
/// at these in turn. Its shape can then be tested without GPUs.
void cpu_position(Graph& graph, const std::vector<SearchPlace>& places) {
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

/// Gives the GPUs of the places their numbers as ranks. A file may describe several hosts with the
/// same bus ids: the first that has all GPUs counts as this one.
Result<void> gpu_position(Graph& graph, const std::vector<SearchPlace>& places) {
  std::map<int, std::map<std::int64_t, int>> hosts;
  for (const int gpu : graph.of(NodeType::gpu)) {
    Node& node = graph.nodes[gpu];
    node.gpu.rank = -1;
    hosts[node.host].emplace(node.id, gpu);
  }
  const SearchPlace* missing = nullptr;
  for (const auto& [host, gpus] : hosts) {
    const auto lacks = std::find_if(places.begin(), places.end(), [&](const SearchPlace& place) {
      return !gpus.contains(place.key);
    });
    if (lacks != places.end()) {
      if (missing == nullptr) missing = &*lacks;
      continue;
    }
    int rank = 0;
    for (const SearchPlace& place : places) graph.nodes[gpus.at(place.key)].gpu.rank = rank++;
    return {};
  }
  if (missing == nullptr) missing = &places.front();  // the file has no GPUs
  return fail(Errc::bad_setting,
              fmt::format("GPU {} of rank {} is not in the topology ({} is of another machine?); "
                          "give this machine's, or none",
                          ccl::detail::bus_id_text(missing->key), missing->ranks.front(),
                          ccl::detail::variable_of("TOPO_FILE")));
}

bool file_has_gpus() {
  const auto given = configured_file();
  if (!given || given->empty()) return false;
  const auto machine = known_machine({});
  return machine && machine->in_file;
}

/// Numbers GPUs by place if two have one number. A rank that sees only its own GPU reports number 0
/// for it, and equal numbers would give all such GPUs the same NIC.
void number_apart(std::vector<DiscoveredGpu>& gpus) {
  std::set<int> numbers;
  for (const DiscoveredGpu& gpu : gpus) numbers.insert(gpu.dev);
  if (numbers.size() == gpus.size()) return;
  for (std::size_t place = 0; place < gpus.size(); ++place) {
    gpus[place].dev = static_cast<int>(place);
  }
}

/// The GPUs of all places, as their first ranks have reported them. `known` becomes false if one of
/// these has not seen its GPU.
std::vector<DiscoveredGpu> reported_gpus(std::span<const PeerInfo> peers,
                                         std::span<const GpuReport> sights,
                                         const std::vector<SearchPlace>& places, bool& known) {
  std::vector<DiscoveredGpu> gpus;
  for (const SearchPlace& place : places) {
    const auto first = static_cast<std::size_t>(place.ranks.front());
    const GpuReport& sight = sights[first];
    known = known && sight.seen != 0;
    DiscoveredGpu gpu;
    gpu.bus_id = ccl::detail::bus_id_text(place.key);
    gpu.dev = sight.seen != 0 ? sight.dev : peers[first].device;
    gpu.sm = peers[first].compute_capability;
    gpu.mig = sight.mig != 0;
    gpu.c2c_links = sight.c2c_links;
    gpu.c2c_mbps = sight.c2c_mbps;
    for (int l = 0; l < sight.link_count && l < GpuReport::max_links; ++l) {
      const auto& link = sight.links[l];
      gpu.links.push_back(
          {link.remote < 0 ? std::string() : ccl::detail::bus_id_text(link.remote), link.count});
    }
    gpus.push_back(std::move(gpu));
  }
  number_apart(gpus);
  return gpus;
}

}  // namespace

GpuReport sight_of(std::int64_t bus_id) {
  GpuReport sight;
  const auto gpu = nvml_gpu(ccl::detail::bus_id_text(bus_id));
  if (!gpu) return sight;
  sight.seen = 1;
  sight.dev = gpu->dev;
  sight.sm = gpu->sm;
  sight.mig = gpu->mig ? 1 : 0;
  sight.c2c_links = gpu->c2c_links;
  sight.c2c_mbps = gpu->c2c_mbps;
  for (const DiscoveredLink& link : gpu->links) {
    std::int64_t remote = -1;
    if (!link.remote_bus_id.empty() && !parse_bus_id(link.remote_bus_id, remote)) remote = -1;
    const int n = std::min(sight.link_count, GpuReport::max_links - 1);
    sight.links[n].remote = remote;
    sight.links[n].count += link.count;
    sight.link_count = n + 1;
  }
  return sight;
}

std::string wrong_report(const GpuReport& report) {
  constexpr int most = 1 << 20;
  ccl::detail::FieldCheck check;
  check.flag("report of a driver", report.seen)
      .flag("MIG", report.mig)
      .flag("loans of GPU memory", report.lends)
      .in_range("number of C2C links", report.c2c_links, 0, most)
      .in_range("speed of C2C links", report.c2c_mbps, 0, std::numeric_limits<int>::max())
      .in_range("number of NVLinks", report.link_count, 0, GpuReport::max_links);
  for (const auto& link : report.links) {
    check.in_range("width of an NVLink", link.count, 0, most)
        .in_range("bus id behind an NVLink", link.remote, -1,
                  std::numeric_limits<std::int64_t>::max());
  }
  return check.why();
}

std::string wrong_share(const MachineShare& share, int ranks) {
  ccl::detail::FieldCheck check;
  check.in_range("lowest rank of the machine", share.machine, -1, ranks - 1);
  if (share.machine < 0) return check.why();  // the rank has failed: no more fields
  check.in_range("number of rings", share.ring_count, 0, MachineShare::max_channels)
      .in_range("number of trees", share.tree_count, 0, MachineShare::max_channels)
      .in_range("path of rings", share.ring_type_intra, 0, int(PathType::dis))
      .in_range("path between machines", share.ring_type_inter, 0, int(PathType::dis))
      .in_range("pattern of trees", share.tree_pattern, int(Pattern::balanced_tree),
                int(Pattern::collnet_direct))
      .in_range("use of several NICs", share.cross_nic, 0, 2)
      .flag("even machine", share.even)
      .flag("NVLink between all GPUs", share.nvlink);
  for (const float bw : {share.ring_bw_intra, share.ring_bw_inter, share.tree_bw_intra,
                         share.tree_bw_inter, share.gpu_bw}) {
    check.require(bw >= 0 && bw < 1e9F, fmt::format("bandwidth is {} GB/s", bw));
  }
  for (const auto* order : {&share.ring, &share.tree}) {
    for (const int rank : *order) check.in_range("rank in an order", rank, 0, ranks - 1);
  }
  constexpr int max_net = std::numeric_limits<std::int16_t>::max();
  for (const auto* nets : {&share.ring_in, &share.ring_out, &share.tree_in, &share.tree_out}) {
    for (const int net : *nets) check.in_range("NIC of a channel", net, -1, max_net);
  }
  check.in_range("number of NICs", share.net_count, 0, MachineShare::max_nets)
      .in_range("number of NICs on rails", share.rail_count, 0, MachineShare::max_nets)
      .in_range("place among the heads", share.head, -1, ranks - 1)
      .flag("use of the receiver's rail", share.same_rail);
  for (const auto* nets : {&share.nets, &share.rails}) {
    for (const int net : *nets) check.in_range("NIC of a rank", net, 0, max_net);
  }
  return check.why();
}

std::vector<SearchPlace> places_of(std::span<const PeerInfo> peers, int rank) {
  const PeerInfo& me = peers[static_cast<std::size_t>(rank)];
  const bool spread = me.device < 0 && file_has_gpus();
  std::map<std::int64_t, SearchPlace> by_key;
  std::int64_t local = 0;
  for (const PeerInfo& peer : peers) {
    if (peer.host_hash != me.host_hash) continue;
    const std::int64_t key = spread ? local : peer.device < 0 ? peer.numa : peer.bus_id;
    ++local;
    SearchPlace& place = by_key[key];
    place.key = key;
    place.ranks.push_back(peer.rank);
  }
  std::vector<SearchPlace> places;
  for (auto& [key, place] : by_key) places.push_back(std::move(place));
  return places;
}

Result<RankPlacement> place_ranks(std::span<const PeerInfo> peers,
                                  std::span<const GpuReport> sights, int rank,
                                  const std::vector<SearchPlace>& places) {
  RankPlacement placement;
  const bool on_gpus = peers[static_cast<std::size_t>(rank)].device >= 0;
  std::vector<DiscoveredGpu> gpus;
  if (on_gpus) gpus = reported_gpus(peers, sights, places, placement.known);
  CCL_TRY(KnownMachine machine, known_machine(std::move(gpus)));
  placement.known = placement.known || machine.in_file;
  placement.graph = std::move(machine.loaded.graph);
  if (on_gpus) {
    CCL_CHECK(gpu_position(placement.graph, places));
  } else {
    cpu_position(placement.graph, places);
  }
  CCL_TRY(placement.rules, configured_rules());
  placement.rules.pxn = placement.rules.pxn && on_gpus && all_reach(peers, sights, rank);
  // GPUs of other communicators are left out to save time.
  std::vector<char> keep(placement.graph.nodes.size(), 1);
  for (const int gpu : placement.graph.of(NodeType::gpu)) {
    keep[gpu] = placement.graph.nodes[gpu].gpu.rank >= 0 ? 1 : 0;
  }
  placement.graph = select(placement.graph, keep);
  placement.paths = compute_paths(placement.graph, placement.rules);
  return placement;
}

std::vector<int> net_devices(const Graph& graph, const std::vector<int>& nets) {
  std::vector<int> devices;
  for (const int net : nets) {
    const int device = graph.nodes[net].net.dev;
    const bool fits = device >= 0 && device <= std::numeric_limits<std::int16_t>::max();
    if (fits) devices.push_back(device);
  }
  return devices;
}

namespace {
/// Distances of NICs from a GPU, as in `EdgeNics`: by the type of the path, then by its bandwidth.
std::vector<int> distances_from(const Paths& paths, int gpu, const std::vector<int>& nets) {
  const auto farness = [&](int net) {
    const Path& path = paths.at(gpu, net);
    return std::pair{path.type, -path.bw};
  };
  std::vector<std::pair<PathType, float>> all;
  for (const int net : nets) all.push_back(farness(net));
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  std::vector<int> distances;
  for (const int net : nets) {
    const auto found = std::lower_bound(all.begin(), all.end(), farness(net));
    distances.push_back(static_cast<int>(found - all.begin()));
  }
  return distances;
}
}  // namespace

Result<std::vector<HostNic>> nics_of(const RankPlacement& placement, int gpu) {
  const Graph& graph = placement.graph;
  std::vector<HostNic> nics;
  const std::vector<int> nets = graph.of(NodeType::net);
  for (const int net : nets) {
    const Node::Net& n = graph.nodes[net].net;
    const bool one = n.port > 0 && n.name.find('+') == n.name.npos;
    nics.push_back({n.dev, one ? fmt::format("{}:{}", n.name, n.port) : n.name, {}, {}});
  }
  if (gpu < 0 || nics.empty()) return nics;
  CCL_TRY(const NetRules rules, configured_nets());
  PathRules own_way = placement.rules;
  own_way.pxn = false;
  const Paths paths = compute_paths(graph, own_way);
  const std::vector<int> distances = distances_from(paths, gpu, nets);
  for (std::size_t n = 0; n < nets.size(); ++n) {
    nics[n].distance = distances[n];
    const GdrAnswer read = check_gdr(graph, paths, own_way, gpu, nets[n], true);
    const GdrAnswer write = check_gdr(graph, paths, own_way, gpu, nets[n], false);
    if (!read.allowed) nics[n].no_read = fmt::format("{}: {}", nics[n].name, read.why);
    if (!write.allowed) nics[n].no_write = fmt::format("{}: {}", nics[n].name, write.why);
    if (placement.paths.at(gpu, nets[n]).type != PathType::pxn) continue;
    const int relay = local_gpu(graph, placement.paths, nets[n]);
    nics[n].relay = graph.nodes[relay].id;
    nics[n].from_relay = distances_from(paths, relay, nets);
    nics[n].relays_messages = rules.relays_messages;
  }
  return nics;
}

MessageNets message_nets(const Graph& graph, const Paths& paths, int gpu, const NetRules& rules) {
  MessageNets found;
  if (gpu < 0) return found;
  found.near = net_devices(graph, local_nets(graph, paths, gpu, rules.policy));
  if (rules.relays_messages) found.rails = net_devices(graph, rail_nets(graph, paths, gpu));
  return found;
}

Result<Machine> channels_of(const RankPlacement& placement, const std::vector<SearchPlace>& places,
                            int rank, int ranks, bool dump) {
  int mine = 0, here = 0;
  for (std::size_t p = 0; p < places.size(); ++p) {
    here += static_cast<int>(places[p].ranks.size());
    if (std::find(places[p].ranks.begin(), places[p].ranks.end(), rank) != places[p].ranks.end()) {
      mine = static_cast<int>(p);
    }
  }
  const int positions = static_cast<int>(places.size()) + (here < ranks ? 1 : 0);
  const Graph graph = trim(placement.graph, placement.paths, mine, positions);
  const Paths paths = compute_paths(graph, placement.rules);
  CCL_TRY(ChannelPlan plan, configured_channels(graph, paths, positions));
  if (dump) {
    CCL_CHECK(dump_machine(placement.graph));
    CCL_CHECK(dump_channels(plan, graph));
  }
  Machine machine;
  bool on_cpu = true;
  CCL_TRY(const NetRules nets, configured_nets());
  std::map<int, MessageNets> own;  // by rank
  for (const int gpu : graph.of(NodeType::gpu)) {
    const MessageNets found = message_nets(graph, paths, gpu, nets);
    for (const int there : places[graph.nodes[gpu].gpu.rank].ranks) own[there] = found;
    on_cpu = on_cpu && graph.nodes[gpu].gpu.on_cpu;
  }
  for (auto& [there, found] : own) {
    machine.ranks.push_back(there);
    machine.nets.push_back(std::move(found.near));
    machine.rails.push_back(std::move(found.rails));
  }
  if (!on_cpu) {
    const GpuLinks links = gpu_links(graph, paths);
    machine.gpu_bw = links.bw;
    machine.nvlink = links.nvlink;
  }
  machine.same_rail = nets.cross_nic == 0;
  machine.even = on_cpu || !placement.known || all_alike(graph, paths);
  machine.ring = std::move(plan.ring);
  machine.tree = std::move(plan.tree);
  for (const ChannelOrder& order : plan.nvls.channels) {
    if (order.ranks.empty()) continue;
    const int head = places[order.ranks.front()].ranks.front();
    const bool known =
        std::find(machine.heads.begin(), machine.heads.end(), head) != machine.heads.end();
    if (!known) machine.heads.push_back(head);
  }
  expand(machine.ring, places);
  expand(machine.tree, places);
  return machine;
}

}  // namespace ccl::topo
