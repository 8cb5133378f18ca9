#include <ccl/topo/path.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace ccl::topo {

std::string print_path(const Graph& graph, const Path& path) {
  std::string text;
  for (const int l : path.links) {
    const Link& link = graph.links[l];
    text += fmt::format("--{}({:g})->{}", name(link.type), link.bw, graph.label(link.to));
  }
  return text;
}

void write_paths(const Graph& graph, const Paths& paths, const TextSink& sink) {
  constexpr std::array targets{NodeType::gpu, NodeType::nvs, NodeType::cpu, NodeType::net};
  for (const NodeType source : {NodeType::gpu, NodeType::net}) {
    for (const int from : graph.of(source)) {
      std::string text = fmt::format("Paths from {} :\n", graph.label(from));
      for (const NodeType target : targets) {
        for (const int to : graph.of(target)) {
          const Path path = paths.at(from, to);
          if (path.reaches()) text += fmt::format(" {} ({:f})\n", print_path(graph, path), path.bw);
        }
      }
      sink(text);
    }
  }
}

std::string print_paths(const Graph& graph, const Paths& paths) {
  std::string text;
  write_paths(graph, paths, [&](std::string_view piece) { text += piece; });
  return text;
}

std::vector<int> ends_of(const Graph& graph) {
  std::vector<int> gpus = graph.of(NodeType::gpu), nets = graph.of(NodeType::net);
  std::stable_sort(gpus.begin(), gpus.end(),
                   [&](int a, int b) { return graph.nodes[a].gpu.rank < graph.nodes[b].gpu.rank; });
  std::stable_sort(nets.begin(), nets.end(),
                   [&](int a, int b) { return graph.nodes[a].net.dev < graph.nodes[b].net.dev; });
  gpus.insert(gpus.end(), nets.begin(), nets.end());
  return gpus;
}

std::string print_matrix(const Graph& graph, const Paths& paths) {
  const std::vector<int> ends = ends_of(graph);
  const auto title = [&](int n) {
    const Node& node = graph.nodes[n];
    return node.type == NodeType::gpu ? fmt::format("GPU{}", node.gpu.rank)
                                      : fmt::format("NET{}", node.net.dev);
  };
  // Cells such as "NVL 371", in columns as wide as the widest entry.
  std::vector<std::vector<std::string>> cells{{""}};
  for (const int to : ends) cells[0].push_back(title(to));
  for (const int from : ends) {
    cells.push_back({title(from)});
    for (const int to : ends) {
      const Path path = paths.at(from, to);
      cells.back().push_back(from == to       ? "-"
                             : path.reaches() ? fmt::format("{} {:.3g}", name(path.type), path.bw)
                                              : std::string(name(PathType::dis)));
    }
  }
  std::size_t width = 0;
  for (const auto& row : cells) {
    for (const std::string& cell : row) width = std::max(width, cell.size() + 2);
  }
  std::string text;
  for (const auto& row : cells) {
    for (const std::string& cell : row) text += fmt::format("{:<{}}", cell, width);
    while (!text.empty() && text.back() == ' ') text.pop_back();
    text += "\n";
  }
  for (const int gpu : ends) {
    if (graph.nodes[gpu].type != NodeType::gpu) continue;
    const int cpu = local_cpu(graph, paths, gpu);
    if (cpu < 0) continue;
    text += fmt::format(
        "{}: {}, cores {}\n", title(gpu), graph.label(cpu),
        graph.nodes[cpu].cpu.affinity.empty() ? "unknown" : graph.nodes[cpu].cpu.affinity);
  }
  return text;
}

namespace {

Element path_element(const Graph& graph, const Path& path, int from, int to) {
  Element entry;
  entry.name = "path";
  entry.set("from", graph.label(from));
  entry.set("to", graph.label(to));
  entry.set("type", std::string(name(path.type)));
  entry.set("bw", fmt::format("{:g}", path.bw));
  for (const int l : path.links) {
    const Link& link = graph.links[l];
    Element hop;
    hop.name = "hop";
    hop.set("link", std::string(name(link.type)));
    hop.set("bw", fmt::format("{:g}", link.bw));
    hop.set("to", graph.label(link.to));
    entry.children.push_back(std::move(hop));
  }
  return entry;
}

/// Calls see(path, from, to) for each path between two GPUs or NETs.
template <class See>
void each_path(const Graph& graph, const Paths& paths, const See& see) {
  const std::vector<int> ends = ends_of(graph);
  for (const int from : ends) {
    for (const int to : ends) {
      const Path path = paths.at(from, to);
      if (from != to && path.reaches()) see(path, from, to);
    }
  }
}

}  // namespace

Element paths_to_xml(const Graph& graph, const Paths& paths) {
  Element root;
  root.name = "paths";
  root.set("version", "1");
  each_path(graph, paths, [&](const Path& path, int from, int to) {
    root.children.push_back(path_element(graph, path, from, to));
  });
  return root;
}

void write_paths_xml(const Graph& graph, const Paths& paths, const TextSink& sink) {
  bool any = false;
  each_path(graph, paths, [&](const Path& path, int from, int to) {
    if (!any) sink("<paths version=\"1\">\n");
    any = true;
    sink(print_xml(path_element(graph, path, from, to), 1));
  });
  sink(any ? "</paths>\n" : "<paths version=\"1\"/>\n");
}

}  // namespace ccl::topo
