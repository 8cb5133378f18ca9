#include "topo/search/gpu_links.hpp"

#include <algorithm>
#include <limits>
#include <vector>

namespace ccl::topo {

bool all_alike(const Graph& graph, const Paths& paths) {
  const std::vector<int> gpus = graph.of(NodeType::gpu);
  float first = -1;  // GB/s
  for (const int a : gpus) {
    for (const int b : gpus) {
      if (a == b) continue;
      const Path path = paths.at(a, b);
      if (first < 0) first = path.bw;
      if (path.type != PathType::nvl || path.bw != first) return false;
    }
  }
  return true;
}

GpuLinks gpu_links(const Graph& graph, const Paths& paths) {
  const std::vector<int> gpus = graph.of(NodeType::gpu);
  GpuLinks slowest;
  if (gpus.size() < 2) return slowest;
  slowest.nvlink = true;
  float path_bw = std::numeric_limits<float>::max(), nvlink_bw = path_bw;
  for (const int a : gpus) {
    float links = 0;
    for (const int l : graph.nodes[a].out) {
      if (graph.links[l].type == LinkType::nvl) links += graph.links[l].bw;
    }
    nvlink_bw = std::min(nvlink_bw, links);
    for (const int b : gpus) {
      if (a == b) continue;
      slowest.nvlink = slowest.nvlink && paths.at(a, b).type <= PathType::nvb;
      path_bw = std::min(path_bw, paths.at(a, b).bw);
    }
  }
  slowest.bw = slowest.nvlink ? nvlink_bw : path_bw;
  return slowest;
}

}  // namespace ccl::topo
