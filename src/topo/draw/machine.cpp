#include <ccl/topo/draw.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "topo/draw/canvas.hpp"

namespace ccl::topo {
using detail::Canvas;
using detail::color;
using detail::stroke;

namespace {

class MachinePicture {
 public:
  explicit MachinePicture(const Graph& graph) : graph_(graph), below_(graph.nodes.size()) {
    for (int n = 0; n < static_cast<int>(graph.nodes.size()); ++n) {
      const Node& node = graph.nodes[n];
      if (node.parent >= 0 && node.type != NodeType::net) below_[node.parent].push_back(n);
    }
  }

  std::string draw() {
    int depth = 1;
    double x = margin;
    const std::vector<int> cpus = graph_.of(NodeType::cpu);
    for (const int cpu : cpus) depth = std::max(depth, levels(cpu));
    leaf_y_ = cpu_y + cpu_h + (depth > 1 ? (depth - 1) * row : 0) + 60;
    std::vector<std::pair<double, double>> spans;
    for (const int cpu : cpus) {
      const double start = x;
      x = place(cpu, x, 0);
      x = std::max(x, start + 190);
      spans.emplace_back(start, x - gap);
      x += 34;
    }
    const double width = std::max(x - 34 - gap + margin, 560.0);
    for (std::size_t i = 0; i < cpus.size(); ++i) {
      const auto [from, to] = spans[i];
      const Node& cpu = graph_.nodes[cpus[i]];
      center_[cpus[i]] = (from + to) / 2;
      const std::string numa =
          cpu.id == 0xffffffffffffffLL ? "CPU" : fmt::format("CPU · NUMA {}", cpu.id);
      canvas_.box(from, cpu_y, to - from, cpu_h, "#33415c", numa,
                  cpu.cpu.vendor == CpuVendor::intel ? "Intel"
                  : cpu.cpu.vendor == CpuVendor::amd ? "AMD"
                  : cpu.cpu.arch == CpuArch::arm     ? "Arm"
                                                     : cpu.cpu.arch_name);
      if (i + 1 < cpus.size()) {
        const double y = cpu_y + cpu_h / 2;
        canvas_.line(to, y, spans[i + 1].first, y, color(LinkType::sys), 4);
        canvas_.label((to + spans[i + 1].first) / 2, cpu_y - 8,
                      fmt::format("SYS {:g}", sys_bw(cpu.cpu)), 12, color(LinkType::sys), "600");
      }
      join_children(cpus[i], cpu_y + cpu_h);
    }
    const double bottom = draw_fabric(width);
    heading(width);
    legend(bottom + 34);
    return canvas_.text(width, bottom + 60);
  }

 private:
  static constexpr double margin = 36, gap = 14, leaf_w = 88, leaf_h = 54, row = 74, cpu_y = 96,
                          cpu_h = 52;

  int levels(int node) const {
    int most = 0;
    for (const int child : below_[node]) most = std::max(most, levels(child));
    return most + 1;
  }

  bool leaf(int node) const {
    const NodeType type = graph_.nodes[node].type;
    return type == NodeType::gpu || type == NodeType::nic;
  }

  /// Sets the positions of everything below `node`, from `x` on; returns the right end.
  double place(int node, double x, int depth) {
    level_[node] = depth;
    if (leaf(node)) {
      center_[node] = x + leaf_w / 2;
      draw_leaf(node, x);
      return x + leaf_w + gap;
    }
    const double start = x;
    for (const int child : below_[node]) x = place(child, x, depth + 1);
    if (x == start) x += leaf_w + gap;
    center_[node] = (start + x - gap) / 2;
    if (depth > 0) {
      const double y = cpu_y + cpu_h + 28 + (depth - 1) * row;
      canvas_.box(start, y, x - gap - start, 34, "#d7dee9",
                  x - start > 150 ? "PCIe switch" : "PCIe", "", "#3b4a63");
      top_[node] = y;
      join_children(node, y + 34);
    }
    return x;
  }

  void join_children(int node, double from_y) {
    for (const int child : below_[node]) {
      float bw = 0;
      LinkType type = LinkType::pci;
      for (const int l : graph_.nodes[child].out) {
        const Link& link = graph_.links[l];
        if (link.to == node && (bw == 0 || link.type == LinkType::c2c)) {
          bw = link.bw;
          type = link.type;
        }
      }
      const double x = center_[child];
      const double y = leaf(child) ? leaf_y_ : top_[child];
      canvas_.line(x, from_y, x, y, color(type), stroke(std::min(bw, 64.0F)));
      if (bw > 0 && bw < gbps::loc) {
        canvas_.label(x + 6, (y + from_y) / 2 + 4, fmt::format("{:.3g}", bw), 11, "#5b6880", "400",
                      "start");
      }
    }
  }

  void draw_leaf(int node, double x) {
    const Node& n = graph_.nodes[node];
    if (n.type == NodeType::gpu) {
      canvas_.box(x, leaf_y_, leaf_w, leaf_h, n.gpu.on_cpu ? "#4b5d7a" : "#1f7a4d",
                  fmt::format("{} {}", n.gpu.on_cpu ? "Rank" : "GPU", n.gpu.rank),
                  n.gpu.on_cpu ? "on CPU"
                  : n.gpu.gcn.empty()
                      ? fmt::format("sm_{}", n.gpu.sm)
                      : (n.gpu.gcn.rfind("gfx", 0) == 0 ? n.gpu.gcn : "gfx" + n.gpu.gcn));
      return;
    }
    std::string names;
    float bw = 0;
    int count = 0;
    for (const int net : graph_.of(NodeType::net)) {
      if (graph_.nodes[net].parent != node) continue;
      if (count++ == 0) names = graph_.nodes[net].net.name;
      bw += graph_.nodes[net].net.bw;
    }
    if (count > 1) names = fmt::format("{} NICs", count);
    if (names.size() > 11) names = names.substr(0, 10) + "…";
    canvas_.box(x, leaf_y_, leaf_w, leaf_h, "#c2740a", names.empty() ? "NIC" : names,
                fmt::format("{:g} Gb/s", bw * 8));
  }

  /// Draws NVLinks below the GPUs. Returns the lowest line used.
  double draw_fabric(double width) {
    double bottom = leaf_y_ + leaf_h;
    for (const int nvs : graph_.of(NodeType::nvs)) {
      const double y = leaf_y_ + leaf_h + 64;
      float bw = 0;
      for (const int l : graph_.nodes[nvs].out) {
        const Link& link = graph_.links[l];
        bw = std::max(bw, link.bw);
        canvas_.line(center_[link.to], leaf_y_ + leaf_h, center_[link.to], y, color(link.type),
                     stroke(link.bw));
      }
      canvas_.box(margin, y, width - 2 * margin, 40, "#22a559",
                  fmt::format("NVSwitch · {:g} GB/s per GPU and direction", bw));
      bottom = y + 40;
    }
    std::set<std::pair<int, int>> done;
    for (const Link& link : graph_.links) {
      const auto pair = std::minmax(link.from, link.to);
      if (link.type != LinkType::nvl || graph_.nodes[link.from].type != NodeType::gpu ||
          graph_.nodes[link.to].type != NodeType::gpu || !done.insert(pair).second) {
        continue;
      }
      const double a = center_[link.from], b = center_[link.to];
      const double drop = 26 + std::abs(a - b) * 0.22;
      const double y = leaf_y_ + leaf_h;
      canvas_.path(fmt::format("M{:.1f} {:.1f}C{:.1f} {:.1f} {:.1f} {:.1f} {:.1f} {:.1f}", a, y, a,
                               y + drop, b, y + drop, b, y),
                   color(LinkType::nvl), stroke(link.bw), 0.75);
      bottom = std::max(bottom, y + drop * 0.78);
    }
    return bottom;
  }

  void heading(double width) {
    const auto gpus = graph_.of(NodeType::gpu);
    const auto nets = graph_.of(NodeType::net);
    const bool on_cpu = !gpus.empty() && graph_.nodes[gpus[0]].gpu.on_cpu;
    static_cast<void>(width);
    canvas_.label(
        margin, 40,
        fmt::format("{} {}{}, {} NIC{}", gpus.size(), on_cpu ? "CPU rank" : "GPU",
                    gpus.size() == 1 ? "" : "s", nets.size(), nets.size() == 1 ? "" : "s"),
        22, "#1b2433", "700", "start");
    canvas_.label(margin, 62, "bandwidths in GB/s, one direction", 13, "#5b6880", "400", "start");
  }

  void legend(double y) {
    double x = margin;
    const std::array<std::pair<LinkType, const char*>, 4> entries{{{LinkType::nvl, "NVLink"},
                                                                   {LinkType::pci, "PCIe"},
                                                                   {LinkType::sys, "between CPUs"},
                                                                   {LinkType::c2c, "C2C"}}};
    for (const auto& [type, text] : entries) {
      const LinkType wanted = type;
      if (std::none_of(graph_.links.begin(), graph_.links.end(),
                       [&](const Link& link) { return link.type == wanted; })) {
        continue;
      }
      canvas_.line(x, y - 4, x + 24, y - 4, color(type), 4);
      canvas_.label(x + 32, y, text, 12, "#5b6880", "400", "start");
      x += 120;
    }
  }

  const Graph& graph_;
  std::vector<std::vector<int>> below_;
  std::map<int, double> center_, top_;
  std::map<int, int> level_;
  double leaf_y_ = 0;
  Canvas canvas_;
};

}  // namespace

std::string to_svg(const Graph& graph) {
  return MachinePicture(graph).draw();
}

}  // namespace ccl::topo
