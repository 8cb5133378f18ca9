#include <ccl/topo/draw.hpp>

#include <fmt/format.h>

#include <memory>
#include <vector>

#include "tool.hpp"

namespace tool {
namespace {

namespace topo = ccl::topo;
using topo::NodeType;

using Children = std::vector<std::vector<int>>;  // of each node

void print_tree(const topo::Graph& graph, const Children& children, int node, int depth) {
  const topo::Node& n = graph.nodes[node];
  std::string what;
  if (n.type == NodeType::gpu) {
    what =
        fmt::format("rank {} {}", n.gpu.rank,
                    n.gpu.on_cpu ? "on CPU" : fmt::format("sm_{} gdr {:d}", n.gpu.sm, n.gpu.gdr));
  }
  if (n.type == NodeType::net) {
    what = fmt::format("{} {:g} Gb/s gdr {:d}", n.net.name, n.net.bw * 8, n.net.gdr);
  }
  if (n.type == NodeType::cpu) what = fmt::format("{} {}", n.cpu.vendor_name, n.cpu.affinity);
  fmt::print("{:{}}{} {}\n", "", depth * 2, graph.label(node), what);
  for (const int l : n.out) {
    const topo::Link& link = graph.links[l];
    if (link.to == n.parent || graph.nodes[link.to].parent == node) continue;
    fmt::print("{:{}}+ {} {:g} GB/s -> {}\n", "", depth * 2 + 2, topo::name(link.type), link.bw,
               graph.label(link.to));
  }
  for (const int child : children[node]) print_tree(graph, children, child, depth + 1);
}

void print_trees(const topo::Graph& graph) {
  Children children(graph.nodes.size());
  for (int n = 0; n < static_cast<int>(graph.nodes.size()); ++n) {
    const int parent = graph.nodes[n].parent;
    if (parent >= 0) children[parent].push_back(n);
  }
  for (int n = 0; n < static_cast<int>(graph.nodes.size()); ++n) {
    if (graph.nodes[n].parent < 0) print_tree(graph, children, n, 0);
  }
}

struct ShowOptions {
  Source source;
  std::string format;
};

ccl::Result<void> show(const ShowOptions& options) {
  Source source = options.source;
  source.lists_repairs = options.format == "text";
  CCL_TRY(const Machine machine, look_at(source));
  const topo::Graph& graph = machine.graph();
  if (options.format == "json") {
    fmt::print("{}", topo::to_json(graph));
  } else if (options.format == "xml") {
    fmt::print("{}", topo::print_xml(topo::to_xml(graph)));
  } else if (options.format == "dot") {
    fmt::print("{}", topo::to_dot(graph));
  } else if (options.format == "svg") {
    fmt::print("{}", topo::to_svg(graph));
  } else {
    print_trees(graph);
    for (const topo::Repair& repair : machine.loaded.repairs) {
      // Of a machine that was detected, there are no lines.
      const std::string where = repair.line > 0 ? fmt::format(", line {}", repair.line) : "";
      fmt::print("repaired{}: {}\n", where, repair.what);
    }
  }
  return {};
}

}  // namespace

Command add_show(CLI::App& app) {
  const auto options = std::make_shared<ShowOptions>();
  CLI::App* const command = app.add_subcommand("show", "nodes and links");
  options->source.add_options(*command);
  add_format(*command, options->format, {"text", "json", "xml", "dot", "svg"});
  return {command, [options] { return show(*options); }};
}

}  // namespace tool
