#pragma once

#include <ccl/topo/arrange.hpp>
#include <ccl/topo/connect.hpp>
#include <ccl/topo/draw.hpp>
#include <ccl/topo/explain.hpp>
#include <ccl/topo/fuse.hpp>
#include <ccl/topo/lint.hpp>
#include <ccl/topo/search.hpp>

#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace ccl::test {

/// Three machines with these rings and interleaved ranks, published and arranged.
inline void arrange(const topo::ChannelGraph& ring, int each, std::size_t salt) {
  if (each == 0 || ring.channels.empty()) return;
  std::vector<topo::MachineShare> reported(static_cast<std::size_t>(each) * 3);
  for (int m = 0; m < 3; ++m) {
    topo::Machine machine;
    machine.even = salt % 2 == 0;
    machine.ring = machine.tree = ring;
    machine.tree.pattern = static_cast<topo::Pattern>(1 + salt % 3);
    for (int r = 0; r < each; ++r) machine.ranks.push_back(r * 3 + m);
    for (auto* graph : {&machine.ring, &machine.tree}) {
      for (auto& order : graph->channels) {
        for (int& rank : order.ranks) rank = machine.ranks[static_cast<std::size_t>(rank % each)];
      }
    }
    if (machine.ring.channels[0].ranks.size() != static_cast<std::size_t>(each)) return;
    for (const int r : machine.ranks) reported[static_cast<std::size_t>(r)] = share_of(machine, r);
  }
  std::string wrong;
  const auto made = topo::Arrangement::of(topo::machines_of(reported, wrong), each * 3);
  if (!made) return;
  for (int root = -1; root < each * 3; root += each) {
    for (int channel = 0; channel < 2; ++channel) {
      int roots = 0, children = 0;
      for (int r = 0; r < each * 3; ++r) {
        const TreePosition position = made->tree(r, root, channel);
        roots += position.is_root() ? 1 : 0;
        for (const int down : position.down) {
          if (down < 0) continue;
          ++children;
          if (made->tree(down, root, channel).up != r) std::abort();
        }
      }
      if (roots != 1 || children != each * 3 - 1) std::abort();
    }
  }
}

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
  static_cast<void>(topo::print_matrix(graph, paths));
  static_cast<void>(topo::print_xml(topo::paths_to_xml(graph, paths)));
  static_cast<void>(topo::paths_to_svg(graph, paths));
  static_cast<void>(topo::paths_to_dot(graph, paths));
  static_cast<void>(topo::lint(*loaded));
  const int last = static_cast<int>(graph.nodes.size()) - 1;
  for (const int n : {0, last / 2, last}) {
    if (last >= 0) static_cast<void>(topo::explain(graph, paths, {}, n, last - n));
  }
  for (const topo::FuseLevel level : {topo::FuseLevel::port, topo::FuseLevel::sys}) {
    topo::FuseRules rules;
    rules.level = level;
    const topo::Graph fused = topo::fuse_nets(graph, rules);
    const auto written = topo::parse_xml(topo::print_xml(topo::to_xml(fused)), "fused");
    demand(written && topo::to_graph(*written), "a machine with fused NETs does not load");
  }
  const topo::XmlFile hosts{"hosts", topo::join_hosts({file->root, file->root})};
  if (const auto two = topo::to_graph(hosts)) {
    static_cast<void>(topo::compute_paths(two->graph));
  }
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
    arrange(ring, ranks, bytes.size());
  }
  if (gpus > 0) static_cast<void>(topo::trim(graph, paths, 0, gpus + 1));
  static_cast<void>(topo::to_svg(graph));
  static_cast<void>(topo::to_dot(graph));
  static_cast<void>(topo::to_json(graph, &paths));
  return true;
}

}  // namespace ccl::test
