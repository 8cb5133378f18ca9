#include <ccl/topo/draw.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "topo/draw/canvas.hpp"

namespace ccl::topo {
using detail::Canvas;

namespace {

const char* fill(PathType type) {
  switch (type) {
    case PathType::loc:
      return "#eef1f6";
    case PathType::nvl:
      return "#1f7a4d";
    case PathType::nvb:
      return "#4fae7d";
    case PathType::c2c:
    case PathType::p2c:
      return "#7c3aed";
    case PathType::pix:
      return "#2456a6";
    case PathType::pxb:
      return "#5383cf";
    case PathType::pxn:
      return "#0e8f8f";
    case PathType::phb:
      return "#c2740a";
    case PathType::sys:
      return "#dc5b4b";
    case PathType::net:
    case PathType::dis:
      break;
  }
  return "#8593a8";
}

}  // namespace

std::string paths_to_svg(const Graph& graph, const Paths& paths) {
  const std::vector<int> gpus = graph.of(NodeType::gpu), nets = graph.of(NodeType::net);
  const std::vector<int> ends = ends_of(graph);
  Canvas canvas;
  constexpr double cell = 74, high = 44, left = 118, top = 116, gap = 4;
  const auto title = [&](int n) {
    const Node& node = graph.nodes[n];
    return node.type == NodeType::gpu
               ? fmt::format("{} {}", node.gpu.on_cpu ? "Rank" : "GPU", node.gpu.rank)
               : fmt::format("NET {}", node.net.dev);
  };
  canvas.label(36, 40,
               fmt::format("Paths between {} GPU{} and {} NIC{}", gpus.size(),
                           gpus.size() == 1 ? "" : "s", nets.size(), nets.size() == 1 ? "" : "s"),
               22, "#1b2433", "700", "start");
  canvas.label(36, 62, "from the row to the column; bandwidths in GB/s, one direction", 13,
               "#5b6880", "400", "start");
  std::set<PathType> seen;
  for (std::size_t i = 0; i < ends.size(); ++i) {
    const double at = static_cast<double>(i);
    canvas.label(left + at * (cell + gap) + cell / 2, top - 12, title(ends[i]), 13, "#1b2433",
                 "600");
    canvas.label(left - 14, top + at * (high + gap) + high / 2 + 5, title(ends[i]), 13, "#1b2433",
                 "600", "end");
    for (std::size_t j = 0; j < ends.size(); ++j) {
      const Path path = paths.at(ends[i], ends[j]);
      const double x = left + static_cast<double>(j) * (cell + gap), y = top + at * (high + gap);
      if (i == j) {
        canvas.box(x, y, cell, high, fill(PathType::loc), "");
        continue;
      }
      seen.insert(path.type);
      canvas.box(x, y, cell, high, fill(path.type), std::string(name(path.type)),
                 path.reaches() ? fmt::format("{:.3g}", path.bw) : "");
    }
  }
  const double bottom = top + static_cast<double>(ends.size()) * (high + gap) + 34;
  constexpr std::array<std::pair<PathType, const char*>, 9> words{
      {{PathType::nvl, "NVLink"},
       {PathType::nvb, "NVLink through a GPU"},
       {PathType::c2c, "chip to chip"},
       {PathType::pix, "one PCIe switch"},
       {PathType::pxb, "several PCIe switches"},
       {PathType::p2c, "chip to chip, then PCIe"},
       {PathType::pxn, "through the NIC's GPU"},
       {PathType::phb, "through a CPU"},
       {PathType::sys, "between CPUs"}}};
  const double width = std::max(560.0, left + static_cast<double>(ends.size()) * (cell + gap) + 36);
  double x = 36, y = bottom;
  for (const auto& [type, text] : words) {
    if (seen.count(type) == 0) continue;
    if (x + 210 > width) {
      x = 36;
      y += 24;
    }
    canvas.box(x, y - 12, 16, 16, fill(type), "");
    canvas.label(x + 24, y, fmt::format("{} · {}", name(type), text), 12, "#5b6880", "400",
                 "start");
    x += 210;
  }
  return canvas.text(width, y + 28);
}

}  // namespace ccl::topo
