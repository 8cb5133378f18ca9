#pragma once

#include <ccl/topo/connect.hpp>
#include <ccl/topo/draw.hpp>
#include <ccl/topo/search.hpp>

#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace ccl::test {

/// Reads any bytes as a topology or graph file and does all that ccl does with one. Aborts where an
/// answer contradicts itself; crashes are found by sanitizers. Returns true if it was a machine.
inline bool use_topology(std::string_view bytes) {
  const auto demand = [](bool truth, const char* what) {
    if (truth) return;
    std::fprintf(stderr, "%s\n", what);
    std::abort();
  };
  const auto file = topo::parse_xml(bytes, "fuzz");
  if (!file) return false;
  const auto loaded = topo::to_graph(*file);
  topo::Graph small;
  static_cast<void>(topo::to_channel_graphs(*file, loaded ? loaded->graph : small));
  if (!loaded) return false;
  const topo::Graph& graph = loaded->graph;
  if (graph.nodes.size() > 80) return true;
  const std::string text = topo::print_xml(topo::to_xml(graph));
  const auto again = topo::parse_xml(text, "again");
  demand(again.has_value(), "what is written is no XML");
  demand(topo::to_graph(*again).has_value(), "what is written does not load");
  const topo::Paths paths = topo::compute_paths(graph);
  static_cast<void>(topo::print_paths(graph, paths));
  const int gpus = static_cast<int>(graph.of(topo::NodeType::gpu).size());
  for (const int nodes : {1, 2}) {
    topo::SearchOptions options;
    options.budget = options.budget_tree = options.budget_try = 1 << 8;
    options.budget_same_channels = 1 << 6;
    options.between = nodes > 1;
    for (const topo::Pattern pattern :
         {topo::Pattern::ring, topo::Pattern::balanced_tree, topo::Pattern::split_tree,
          topo::Pattern::collnet_direct, topo::Pattern::nvls}) {
      options.pattern = pattern;
      const topo::ChannelGraph found = topo::search(graph, paths, options);
      if (found.bw_intra > 0.1F && pattern == topo::Pattern::ring) {
        demand(topo::check(found, graph, paths).empty(), "a ring is not what it claims");
      }
      static_cast<void>(topo::to_svg(found));
    }
    options.pattern = topo::Pattern::ring;
    const topo::ChannelGraph ring = topo::search(graph, paths, options);
    const int ranks = ring.channels.empty() ? 0 : static_cast<int>(ring.channels[0].ranks.size());
    static_cast<void>(topo::join(topo::replicate(ring, ring, 3), ranks * 3));
  }
  if (gpus > 0) static_cast<void>(topo::trim(graph, paths, 0, gpus + 1));
  static_cast<void>(topo::to_svg(graph));
  static_cast<void>(topo::to_dot(graph));
  static_cast<void>(topo::to_json(graph, &paths));
  return true;
}

}  // namespace ccl::test
