#include <ccl/topo/draw.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "topo/draw/canvas.hpp"

namespace ccl::topo {
using detail::color;
using detail::inks;

std::string to_dot(const Graph& graph) {
  std::string out = "graph machine {\n  node [style=filled, shape=box, fontname=Helvetica];\n";
  for (int n = 0; n < static_cast<int>(graph.nodes.size()); ++n) {
    const NodeType type = graph.nodes[n].type;
    out += fmt::format("  n{} [label=\"{}\", fillcolor=\"{}\"];\n", n, graph.label(n),
                       type == NodeType::gpu   ? "#8fd6ae"
                       : type == NodeType::cpu ? "#b9c4d8"
                       : type == NodeType::nvs ? "#c7efd6"
                       : type == NodeType::net ? "#f3d19c"
                                               : "#e8edf4");
  }
  std::set<std::tuple<int, int, LinkType>> done;
  for (const Link& link : graph.links) {
    const auto [a, b] = std::minmax(link.from, link.to);
    if (!done.insert({a, b, link.type}).second) continue;
    out += fmt::format("  n{} -- n{} [label=\"{} {:g}\", color=\"{}\"];\n", link.from, link.to,
                       name(link.type), link.bw, color(link.type));
  }
  return out + "}\n";
}

namespace {

const char* color_of(PathType type) {
  if (type <= PathType::nvb) return color(LinkType::nvl);
  if (type <= PathType::p2c) return color(LinkType::pci);
  return type == PathType::pxn ? color(LinkType::net) : color(LinkType::sys);
}

constexpr const char* heading =
    "  node [style=filled, shape=box, fontname=Helvetica, fillcolor=\"#8fd6ae\"];\n";

}  // namespace

std::string paths_to_dot(const Graph& graph, const Paths& paths) {
  std::string out = fmt::format("digraph paths {{\n{}", heading);
  const std::vector<int> ends = ends_of(graph);
  for (const int n : ends) {
    out += fmt::format("  n{} [label=\"{}\"{}];\n", n, graph.label(n),
                       graph.nodes[n].type == NodeType::net ? ", fillcolor=\"#f3d19c\"" : "");
  }
  for (const int from : ends) {
    for (const int to : ends) {
      const Path path = paths.at(from, to);
      if (from == to || !path.reaches()) continue;
      // One arrow with two heads if both directions are alike.
      const Path back = paths.at(to, from);
      const bool alike = back.type == path.type && back.bw == path.bw;
      if (alike && from > to) continue;
      out += fmt::format("  n{} -> n{} [label=\"{} {:g}\", color=\"{}\"{}];\n", from, to,
                         name(path.type), path.bw, color_of(path.type), alike ? ", dir=both" : "");
    }
  }
  return out + "}\n";
}

std::string rings_to_dot(const JoinedChannels& joined) {
  std::string out = fmt::format("digraph rings {{\n{}", heading);
  for (std::size_t c = 0; c < joined.rings.size(); ++c) {
    const std::vector<int>& ring = joined.rings[c];
    for (std::size_t r = 0; r < ring.size(); ++r) {
      out += fmt::format("  {} -> {} [label=\"{}\", color=\"{}\"];\n", ring[r],
                         ring[(r + 1) % ring.size()], c, inks[c % inks.size()]);
    }
  }
  return out + "}\n";
}

std::string trees_to_dot(const JoinedChannels& joined) {
  std::string out = fmt::format("digraph trees {{\n{}", heading);
  for (std::size_t c = 0; c < joined.trees.size(); ++c) {
    for (std::size_t r = 0; r < joined.trees[c].size(); ++r) {
      const int up = joined.trees[c][r].up;
      if (up < 0) continue;
      out += fmt::format("  {} -> {} [label=\"{}\", color=\"{}\"];\n", up, r, c,
                         inks[c % inks.size()]);
    }
  }
  return out + "}\n";
}

}  // namespace ccl::topo
