#include <ccl/topo/path.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <deque>
#include <tuple>

namespace ccl::topo {
namespace {

PathType worse(PathType a, PathType b) {
  return std::max(a, b);
}

int fabric_rank(PathType type) {
  return type <= PathType::nvl ? 0 : type == PathType::nvb ? 1 : 2;
}

/// Type of the path that goes from `from` over `link` and then along `rest` to its end.
PathType extend_type(const Graph& graph, const Link& link, const Path& rest) {
  const Node& from = graph.nodes[link.from];
  const Node& to = graph.nodes[link.to];
  PathType type = link.type == LinkType::net ? PathType::loc : static_cast<PathType>(link.type);
  if (from.type == NodeType::pci && to.type == NodeType::pci) type = PathType::pxb;
  if (link.type == LinkType::pci && (from.type == NodeType::cpu || to.type == NodeType::cpu)) {
    type = PathType::phb;
  }
  if (to.type == NodeType::gpu && rest.type == PathType::nvl && type == PathType::nvl) {
    type = PathType::nvb;
  }
  return worse(rest.type, type);
}

std::vector<Path> paths_to(const Graph& graph, int base,
                           const std::vector<std::vector<int>>& into) {
  std::vector<Path> best(graph.nodes.size());
  best[base].type = PathType::loc;
  best[base].bw = gbps::loc;
  std::deque<int> queue{base};
  std::vector<char> queued(graph.nodes.size(), 0);
  while (!queue.empty()) {
    const int node = queue.front();
    queue.pop_front();
    queued[node] = 0;
    for (const int l : into[node]) {
      const Link& link = graph.links[l];
      if (link.from == base) continue;
      // A GPU relays only what comes from another GPU's NVLink, and only over its own last link.
      if (node != base && graph.nodes[node].type == NodeType::gpu &&
          (link.type != LinkType::nvl || graph.nodes[link.from].type != NodeType::gpu ||
           best[node].hops() > 1)) {
        continue;
      }
      if (link.bw <= 0) continue;
      Path candidate;
      candidate.bw = std::min(best[node].bw, link.bw);
      candidate.type = extend_type(graph, link, best[node]);
      const Path& known = best[link.from];
      // Compare before the links are copied: most candidates lose.
      const auto key = std::tuple(fabric_rank(candidate.type), -candidate.bw, best[node].hops() + 1,
                                  candidate.type);
      if (known.reaches() &&
          key >= std::tuple(fabric_rank(known.type), -known.bw, known.hops(), known.type)) {
        continue;
      }
      candidate.links.reserve(best[node].links.size() + 1);
      candidate.links.push_back(l);
      candidate.links.insert(candidate.links.end(), best[node].links.begin(),
                             best[node].links.end());
      best[link.from] = std::move(candidate);
      if (queued[link.from] == 0) {
        queued[link.from] = 1;
        queue.push_back(link.from);
      }
    }
  }
  return best;
}

Path join(const Path& first, const Path& second) {
  Path path;
  if (!first.reaches() || !second.reaches()) return path;
  path.type = worse(first.type, second.type);
  path.bw = std::min(first.bw, second.bw);
  path.links = first.links;
  path.links.insert(path.links.end(), second.links.begin(), second.links.end());
  return path;
}

int nearest_cpu(const Graph& graph, const std::vector<std::vector<Path>>& to, int gpu) {
  int best = -1;
  for (const int cpu : graph.of(NodeType::cpu)) {
    const Path& path = to[cpu][gpu];
    if (!path.reaches()) continue;
    if (best < 0 || path.hops() < to[best][gpu].hops()) best = cpu;
  }
  return best;
}

}  // namespace

Paths compute_paths(const Graph& graph, const PathRules& rules) {
  const std::size_t count = graph.nodes.size();
  std::vector<std::vector<int>> into(count);
  for (const Node& node : graph.nodes) {
    for (const int l : node.out) into[graph.links[l].to].push_back(l);
  }
  std::vector<std::vector<Path>> to(count);
  for (int n = 0; n < static_cast<int>(count); ++n) {
    const NodeType type = graph.nodes[n].type;
    if (type == NodeType::pci || type == NodeType::nic) continue;
    to[n] = paths_to(graph, n, into);
  }
  const std::vector<int> gpus = graph.of(NodeType::gpu);
  const std::vector<int> nets = graph.of(NodeType::net);
  const auto over_c2c = [&](const Path& path) {
    return std::any_of(path.links.begin(), path.links.end(),
                       [&](int l) { return graph.links[l].type == LinkType::c2c; });
  };
  for (const int gpu : gpus) {
    for (const int net : nets) {
      for (Path* path : {&to[net][gpu], &to[gpu][net]}) {
        if (path->type == PathType::phb && over_c2c(*path)) path->type = PathType::p2c;
      }
    }
  }
  const Paths wired(to, to);

  // Peers without P2P talk through memory of the CPU next to the receiver.
  for (const int a : gpus) {
    for (const int b : gpus) {
      if (a == b || check_p2p(graph, wired, rules, a, b).allowed) continue;
      const int cpu = nearest_cpu(graph, to, b);
      const Path through = cpu < 0 ? Path() : join(wired.wired(a, cpu), wired.wired(cpu, b));
      if (through.reaches()) to[b][a] = through;
      if (rules.shm_disabled) to[b][a].type = PathType::net;
    }
  }
  for (const int net : nets) {
    const int relay = rules.pxn ? local_gpu(graph, wired, net) : -1;
    for (const int gpu : gpus) {
      if (relay >= 0 && relay != gpu) {
        const Path& own = wired.wired(gpu, net);
        const Path& relayed = wired.wired(relay, net);
        const PathType level = rules.pxn_c2c ? PathType::p2c : PathType::pxb;
        if (relayed.type <= level && to[relay][gpu].type <= PathType::nvl &&
            graph.nodes[relay].host == graph.nodes[gpu].host &&
            (relayed.bw > own.bw || own.type > PathType::pxn)) {
          // Sending only: the receiver's NIC writes straight into its own GPU.
          to[net][gpu] = join(to[relay][gpu], relayed);
          to[net][gpu].type = PathType::pxn;
        }
      }
      if (check_gdr(graph, wired, rules, gpu, net, false).allowed) continue;
      const int cpu = nearest_cpu(graph, to, gpu);
      if (cpu < 0) continue;
      const Path in = join(wired.wired(net, cpu), wired.wired(cpu, gpu));
      if (in.reaches()) to[gpu][net] = in;
      const Path out = join(wired.wired(gpu, cpu), wired.wired(cpu, net));
      if (out.reaches() && to[net][gpu].type != PathType::pxn) to[net][gpu] = out;
    }
  }
  return {std::move(to), wired.all_wired()};
}

P2pAnswer check_p2p(const Graph& graph, const Paths& paths, const PathRules& rules, int gpu_a,
                    int gpu_b) {
  P2pAnswer answer;
  const Path& path = paths.wired(gpu_a, gpu_b);
  const Node& a = graph.nodes[gpu_a];
  const Node& b = graph.nodes[gpu_b];
  if (!path.reaches()) {
    answer.why = "no path";
    return answer;
  }
  if (rules.p2p_disabled && gpu_a != gpu_b) {
    answer.why = "P2P is disabled";
    return answer;
  }
  if (path.type == PathType::nvb) {
    if (rules.nvb_disabled) {
      answer.why = "relaying through a GPU is disabled";
      return answer;
    }
    answer.relay = graph.links[path.links.front()].to;
  }
  PathType level = PathType::pxb;
  bool by_machine = true;
  if (rules.p2p_level) {
    level = *rules.p2p_level;
    by_machine = false;
  } else {
    const std::vector<int> cpus = graph.of(NodeType::cpu);
    const bool amd = !cpus.empty() && graph.nodes[cpus[0]].cpu.arch == CpuArch::x86 &&
                     graph.nodes[cpus[0]].cpu.vendor == CpuVendor::amd;
    if (amd && graph.of(NodeType::gpu).size() <= 2) level = PathType::sys;
    if (a.gpu.on_cpu && b.gpu.on_cpu) level = PathType::sys;
  }
  answer.allowed = path.type <= level;
  answer.why = fmt::format("path {} is {} than {}, the worst for P2P {}", name(path.type),
                           answer.allowed ? "no worse" : "worse", name(level),
                           by_machine ? "on this machine" : "that was asked for");
  answer.read = answer.allowed && path.type <= PathType::nvb && a.gpu.sm == 80 && b.gpu.sm == 80;
  return answer;
}

GdrAnswer check_gdr(const Graph& graph, const Paths& paths, const PathRules& rules, int gpu,
                    int net, bool read) {
  GdrAnswer answer;
  const Node& g = graph.nodes[gpu];
  const Node& n = graph.nodes[net];
  if (!n.net.gdr) {
    answer.why = fmt::format("{} does not offer it", n.net.name);
    return answer;
  }
  if (!g.gpu.gdr) {
    answer.why = "the GPU does not offer it (is nvidia-peermem or DMA-BUF available?)";
    return answer;
  }
  if (read) {
    const bool nvlink = std::any_of(g.out.begin(), g.out.end(),
                                    [&](int l) { return graph.links[l].type == LinkType::nvl; });
    if (rules.gdr_read ? !*rules.gdr_read : (g.gpu.sm < 80 && !nvlink)) {
      answer.why = rules.gdr_read ? "reading is switched off"
                                  : "reading is slow before sm_80 when PCIe carries P2P traffic";
      return answer;
    }
  }
  const PathType level = rules.gdr_level.value_or(PathType::p2c);
  const Path& path = paths.wired(gpu, net);
  PathType distance = path.type;
  if (paths.at(gpu, net).type == PathType::pxn) {
    const int relay = local_gpu(graph, paths, net);
    if (relay >= 0) distance = paths.wired(relay, net).type;
  }
  answer.allowed = distance <= level;
  answer.why =
      fmt::format("distance {} {} {}", name(distance), answer.allowed ? "<=" : ">", name(level));
  return answer;
}

bool net_beats_p2p(const Graph& graph, const Paths& paths, int gpu_a, int gpu_b) {
  const float direct = paths.at(gpu_a, gpu_b).bw;
  const auto faster = [&](int gpu) {
    const std::vector<int> nets = graph.of(NodeType::net);
    return std::any_of(nets.begin(), nets.end(), [&](int net) {
      const Path& path = paths.wired(gpu, net);
      return path.type <= PathType::pxb && path.bw > direct;
    });
  };
  return faster(gpu_a) && faster(gpu_b);
}

std::vector<int> nearest(const Graph& graph, const Paths& paths, int node, NodeType type) {
  std::vector<int> found;
  const Path* best = nullptr;
  for (const int other : graph.of(type)) {
    const Path& path = paths.wired(node, other);
    if (!path.reaches() || path.bw <= 0) continue;
    const bool wins =
        best == nullptr || path.bw > best->bw || (path.bw == best->bw && path.type < best->type);
    if (wins) {
      best = &path;
      found.clear();
    }
    if (path.bw == best->bw && path.type == best->type) found.push_back(other);
  }
  return found;
}

int local_net(const Graph& graph, const Paths& paths, int gpu, int channel) {
  const std::vector<int> nets = nearest(graph, paths, gpu, NodeType::net);
  if (nets.empty()) return -1;
  const std::size_t gpus =
      std::max<std::size_t>(1, nearest(graph, paths, nets[0], NodeType::gpu).size());
  const unsigned count = static_cast<unsigned>(nets.size());
  unsigned place = static_cast<unsigned>(std::max(0, graph.nodes[gpu].gpu.dev));
  if ((count & (count - 1)) == 0) {
    // Mirrored bits: neighbours in number are far apart in NICs.
    unsigned mirrored = 0;
    for (unsigned bit = 1, top = count >> 1; top > 0; bit <<= 1, top >>= 1) {
      if ((place & bit) != 0) mirrored |= top;
    }
    place = mirrored;
  }
  const unsigned per_gpu = (count + static_cast<unsigned>(gpus) - 1) / static_cast<unsigned>(gpus);
  place += static_cast<unsigned>(channel) % per_gpu;
  return nets[place % count];
}

int local_gpu(const Graph& graph, const Paths& paths, int net) {
  const std::vector<int> gpus = nearest(graph, paths, net, NodeType::gpu);
  const int channels = static_cast<int>(graph.of(NodeType::net).size());
  for (int channel = 0; channel < channels; ++channel) {
    for (const int gpu : gpus) {
      if (local_net(graph, paths, gpu, channel) == net) return gpu;
    }
  }
  return -1;
}

int local_cpu(const Graph& graph, const Paths& paths, int gpu) {
  int best = -1;
  for (const int cpu : graph.of(NodeType::cpu)) {
    const Path& path = paths.wired(gpu, cpu);
    if (!path.reaches()) continue;
    if (best < 0 || path.hops() < paths.wired(gpu, best).hops()) best = cpu;
  }
  return best;
}

std::string cpu_affinity(const Graph& graph, const Paths& paths, int gpu) {
  const int cpu = local_cpu(graph, paths, gpu);
  return cpu < 0 ? std::string() : graph.nodes[cpu].cpu.affinity;
}

Graph select(const Graph& graph, const std::vector<char>& keep) {
  Graph kept;
  kept.version = graph.version;
  std::vector<int> now(graph.nodes.size(), -1);
  for (int n = 0; n < static_cast<int>(graph.nodes.size()); ++n) {
    if (keep[n] == 0) continue;
    Node node = graph.nodes[n];
    node.out.clear();
    now[n] = kept.add(std::move(node));
  }
  for (int n = 0; n < static_cast<int>(graph.nodes.size()); ++n) {
    if (now[n] < 0) continue;
    Node& node = kept.nodes[now[n]];
    if (node.parent >= 0) node.parent = now[node.parent];
    for (const int l : graph.nodes[n].out) {
      const Link& link = graph.links[l];
      if (now[link.to] >= 0) kept.connect(now[n], now[link.to], link.type, link.bw);
    }
  }
  return kept;
}

Graph trim(const Graph& graph, const Paths& paths, int rank, int ranks) {
  const std::vector<int> gpus = graph.of(NodeType::gpu);
  std::vector<int> domain(gpus.size());
  for (std::size_t g = 0; g < gpus.size(); ++g) {
    domain[g] = static_cast<int>(g);
    for (std::size_t p = 0; p < g; ++p) {
      if (paths.at(gpus[g], gpus[p]).type < PathType::net)
        domain[g] = std::min(domain[g], domain[p]);
    }
  }
  int mine = -1;
  for (std::size_t g = 0; g < gpus.size(); ++g) {
    if (graph.nodes[gpus[g]].gpu.rank == rank) mine = domain[g];
  }
  std::vector<char> keep(graph.nodes.size(), 1);
  int local = 0;
  for (std::size_t g = 0; g < gpus.size(); ++g) {
    keep[gpus[g]] = domain[g] == mine && graph.nodes[gpus[g]].gpu.rank >= 0 ? 1 : 0;
    local += keep[gpus[g]];
  }
  if (local >= ranks) {
    for (const int net : graph.of(NodeType::net)) keep[net] = 0;
    for (const int nic : graph.of(NodeType::nic)) keep[nic] = 0;
  }
  return select(graph, keep);
}

void add_cpu_rank(Graph& graph, int cpu, int rank) {
  Node node;
  node.type = NodeType::gpu;
  node.id = rank;
  node.host = graph.nodes[cpu].host;
  node.parent = cpu;
  node.gpu.rank = rank;
  node.gpu.dev = rank;
  node.gpu.on_cpu = true;
  node.gpu.gdr = true;  // its memory is what NICs reach anyway
  const int seat = graph.add(std::move(node));
  graph.connect(seat, cpu, LinkType::loc, gbps::host_memory);
  graph.connect(cpu, seat, LinkType::loc, gbps::host_memory);
}

void add_cpu_ranks(Graph& graph, int count) {
  const std::vector<int> cpus = graph.of(NodeType::cpu);
  if (cpus.empty()) return;
  for (int rank = 0; rank < count; ++rank) {
    // Neighbouring ranks share a NUMA node.
    const int cpu =
        cpus[static_cast<std::size_t>(rank) * cpus.size() / static_cast<std::size_t>(count)];
    add_cpu_rank(graph, cpu, rank);
  }
}

std::string print_path(const Graph& graph, const Path& path) {
  std::string text;
  for (const int l : path.links) {
    const Link& link = graph.links[l];
    text += fmt::format("--{}({:g})->{}", name(link.type), link.bw, graph.label(link.to));
  }
  return text;
}

std::string print_paths(const Graph& graph, const Paths& paths) {
  std::string text;
  constexpr std::array targets{NodeType::gpu, NodeType::nvs, NodeType::cpu, NodeType::net};
  for (const NodeType source : {NodeType::gpu, NodeType::net}) {
    for (const int from : graph.of(source)) {
      text += fmt::format("Paths from {} :\n", graph.label(from));
      for (const NodeType target : targets) {
        for (const int to : graph.of(target)) {
          const Path& path = paths.at(from, to);
          if (path.reaches()) text += fmt::format(" {} ({:f})\n", print_path(graph, path), path.bw);
        }
      }
    }
  }
  return text;
}

}  // namespace ccl::topo
