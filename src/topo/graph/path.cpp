#include <ccl/topo/path.hpp>

#include <algorithm>
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

/// Type of the path from `from` over `link` and then along `rest` to its end.
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
      // A GPU relays only data from another GPU's NVLink, and only over its own last link.
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
      // Compares before the links are copied: most candidates lose.
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

  // Peers without P2P use memory of the CPU next to the receiver.
  for (const int a : gpus) {
    for (const int b : gpus) {
      if (a == b || check_p2p(graph, wired, rules, a, b).allowed) continue;
      const int cpu = nearest_cpu(graph, to, b);
      const Path through = cpu < 0 ? Path() : join(wired.wired(a, cpu), wired.wired(cpu, b));
      if (through.reaches()) to[b][a] = through;
      const bool apart = graph.nodes[a].host != graph.nodes[b].host;
      if (rules.shm_disabled || apart) to[b][a].type = PathType::net;
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
            check_gdr(graph, wired, rules, relay, net, true).allowed &&
            (relayed.bw > own.bw || own.type > PathType::pxn)) {
          // Sending only: the receiver's NIC writes directly to its own GPU.
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

}  // namespace ccl::topo
