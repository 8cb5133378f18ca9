#include <ccl/topo/path.hpp>

#include <algorithm>

namespace ccl::topo {

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
  node.gpu.gdr = true;  // NICs reach its memory in any case
  const int position = graph.add(std::move(node));
  graph.connect(position, cpu, LinkType::loc, gbps::host_memory);
  graph.connect(cpu, position, LinkType::loc, gbps::host_memory);
}

void add_cpu_ranks(Graph& graph, int count) {
  const std::vector<int> cpus = graph.of(NodeType::cpu);
  if (cpus.empty()) return;
  for (int rank = 0; rank < count; ++rank) {
    // Neighboring ranks share a NUMA node.
    const int cpu =
        cpus[static_cast<std::size_t>(rank) * cpus.size() / static_cast<std::size_t>(count)];
    add_cpu_rank(graph, cpu, rank);
  }
}

}  // namespace ccl::topo
