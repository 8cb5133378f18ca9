#include <ccl/topo/search.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace ccl::topo {

std::string check(const ChannelGraph& found, const Graph& graph, const Paths& paths) {
  std::vector<int> ranks;
  for (const int gpu : graph.of(NodeType::gpu)) {
    if (graph.nodes[gpu].gpu.rank >= 0) ranks.push_back(graph.nodes[gpu].gpu.rank);
  }
  std::sort(ranks.begin(), ranks.end());
  std::map<int, int> nets;
  for (const int net : graph.of(NodeType::net)) nets[graph.nodes[net].net.dev] = net;
  std::vector<double> load(graph.links.size(), 0);
  std::string wrong;
  const auto edge = [&](int c, int from, int to, float bw, PathType worst) {
    const Path path = paths.at(from, to);
    if (path.type > worst && wrong.empty()) {
      wrong = fmt::format("channel {}: {} to {} is {}, worse than {}", c, graph.label(from),
                          graph.label(to), name(path.type), name(worst));
    }
    for (const int l : path.links) load[l] += bw;
  };
  for (int c = 0; c < found.count(); ++c) {
    const ChannelOrder& order = found.channels[c];
    std::vector<int> sorted = order.ranks;
    std::sort(sorted.begin(), sorted.end());
    if (sorted != ranks) return fmt::format("channel {} does not hold every rank once", c);
    if (found.pattern == Pattern::nvls || found.pattern == Pattern::collnet_direct) continue;
    for (std::size_t i = 0; i + 1 < order.ranks.size(); ++i) {
      edge(c, graph.gpu_of_rank(order.ranks[i]), graph.gpu_of_rank(order.ranks[i + 1]),
           found.bw_intra, found.type_intra);
    }
    const int first = graph.gpu_of_rank(order.ranks.front());
    const int last = graph.gpu_of_rank(order.ranks.back());
    if (order.net_in >= 0) {
      if (nets.count(order.net_in) == 0 || nets.count(order.net_out) == 0) {
        return fmt::format("channel {} uses NET {} or {}, which is not there", c, order.net_in,
                           order.net_out);
      }
      edge(c, nets[order.net_in], first, found.bw_inter, found.type_inter);
      if (found.pattern == Pattern::ring) {
        edge(c, last, nets[order.net_out], found.bw_inter, found.type_inter);
      }
    } else if (found.pattern == Pattern::ring && first != last) {
      edge(c, last, first, found.bw_intra, found.type_intra);
    }
  }
  for (std::size_t l = 0; l < load.size() && wrong.empty(); ++l) {
    if (load[l] > graph.links[l].bw * 1.001 + 0.01) {
      const Link& link = graph.links[l];
      wrong = fmt::format("{} to {} carries {:g} GB/s of {:g}", graph.label(link.from),
                          graph.label(link.to), load[l], link.bw);
    }
  }
  return wrong;
}

}  // namespace ccl::topo
