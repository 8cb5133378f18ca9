#include <ccl/topo/path.hpp>

#include <algorithm>

#include "topo/search/searcher.hpp"

namespace ccl::topo {

unsigned detail::first_net(const Graph& graph, int gpu, unsigned count) {
  const unsigned place = static_cast<unsigned>(std::max(0, graph.nodes[gpu].gpu.dev));
  if ((count & (count - 1)) != 0) return place;
  // Mirrored bits: neighboring numbers are far apart in NICs.
  unsigned mirrored = 0;
  for (unsigned bit = 1, top = count >> 1; top > 0; bit <<= 1, top >>= 1) {
    if ((place & bit) != 0) mirrored |= top;
  }
  return mirrored;
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
  const unsigned per_gpu = (count + static_cast<unsigned>(gpus) - 1) / static_cast<unsigned>(gpus);
  return nets[(detail::first_net(graph, gpu, count) + static_cast<unsigned>(channel) % per_gpu) %
              count];
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

}  // namespace ccl::topo
