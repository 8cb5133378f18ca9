#include <ccl/topo/draw.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>

namespace ccl::topo {

using nlohmann::json;

std::string to_json(const Graph& graph, const Paths* paths) {
  json out;
  out["nodes"] = json::array();
  for (int n = 0; n < static_cast<int>(graph.nodes.size()); ++n) {
    const Node& node = graph.nodes[n];
    json entry{{"name", graph.label(n)}, {"type", name(node.type)}};
    if (node.type == NodeType::gpu) {
      entry["rank"] = node.gpu.rank;
      entry["dev"] = node.gpu.dev;
      entry["sm"] = node.gpu.sm;
      entry["gdr"] = node.gpu.gdr;
      entry["on_cpu"] = node.gpu.on_cpu;
    } else if (node.type == NodeType::net) {
      entry["net"] = node.net.name;
      entry["dev"] = node.net.dev;
      entry["gbps"] = node.net.bw;
      entry["gdr"] = node.net.gdr;
    } else if (node.type == NodeType::cpu) {
      entry["vendor"] = node.cpu.vendor_name;
      entry["affinity"] = node.cpu.affinity;
    }
    out["nodes"].push_back(std::move(entry));
  }
  out["links"] = json::array();
  for (const Link& link : graph.links) {
    out["links"].push_back({{"from", graph.label(link.from)},
                            {"to", graph.label(link.to)},
                            {"type", name(link.type)},
                            {"gbps", link.bw}});
  }
  if (paths != nullptr) {
    out["paths"] = json::array();
    std::vector<int> ends = graph.of(NodeType::gpu);
    for (const int net : graph.of(NodeType::net)) ends.push_back(net);
    for (const int from : ends) {
      for (const int to : ends) {
        const Path& path = paths->at(from, to);
        if (from == to || !path.reaches()) continue;
        json hops = json::array();
        for (const int l : path.links) hops.push_back(graph.label(graph.links[l].to));
        out["paths"].push_back({{"from", graph.label(from)},
                                {"to", graph.label(to)},
                                {"type", name(path.type)},
                                {"gbps", path.bw},
                                {"hops", hops}});
      }
    }
  }
  return out.dump(1, ' ', false, json::error_handler_t::replace) + "\n";
}

std::string to_json(const ChannelGraph& channels) {
  json out{{"pattern", name(channels.pattern)},         {"gbps_inside", channels.bw_intra},
           {"gbps_between", channels.bw_inter},         {"type_inside", name(channels.type_intra)},
           {"type_between", name(channels.type_inter)}, {"channels", json::array()}};
  for (const ChannelOrder& order : channels.channels) {
    out["channels"].push_back(
        {{"ranks", order.ranks}, {"net_in", order.net_in}, {"net_out", order.net_out}});
  }
  return out.dump(1) + "\n";
}

std::string to_json(const JoinedChannels& joined) {
  json out{{"rings", joined.rings}, {"trees", json::array()}};
  for (const std::vector<TreeLinks>& tree : joined.trees) {
    json up = json::array(), down = json::array();
    for (const TreeLinks& links : tree) {
      up.push_back(links.up);
      json children = json::array();
      for (const int child : links.down) {
        if (child >= 0) children.push_back(child);
      }
      down.push_back(std::move(children));
    }
    out["trees"].push_back({{"up", up}, {"down", down}});
  }
  return out.dump() + "\n";
}

namespace {

const char* color(LinkType type) {
  switch (type) {
    case LinkType::nvl:
      return "#22a559";
    case LinkType::c2c:
      return "#7c3aed";
    case LinkType::sys:
      return "#dc5b4b";
    case LinkType::net:
      return "#c2740a";
    default:
      return "#8593a8";
  }
}

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '"') {
      out += "&quot;";
    } else {
      out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return out;
}

/// SVG text under construction. Coordinates are pixels.
class Canvas {
 public:
  void box(double x, double y, double w, double h, const char* fill, const std::string& text,
           const std::string& note = "", const char* ink = "#ffffff") {
    body_ += fmt::format(
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" rx=\"8\" "
        "fill=\"{}\"/>\n",
        x, y, w, h, fill);
    const double middle = y + h / 2;
    label(x + w / 2, note.empty() ? middle + 5 : middle - 2, text, 14, ink, "600");
    if (!note.empty()) label(x + w / 2, middle + 14, note, 11, ink, "400");
  }
  void label(double x, double y, const std::string& text, double size, const char* ink,
             const char* weight = "400", const char* anchor = "middle") {
    body_ += fmt::format(
        "<text x=\"{:.1f}\" y=\"{:.1f}\" font-size=\"{:g}\" fill=\"{}\" font-weight=\"{}\" "
        "text-anchor=\"{}\">{}</text>\n",
        x, y, size, ink, weight, anchor, escaped(text));
  }
  void path(const std::string& way, const char* ink, double width, double opacity = 1,
            bool arrow = false) {
    lines_ += fmt::format(
        "<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"{:.1f}\" "
        "stroke-opacity=\"{:g}\" "
        "stroke-linecap=\"round\"{}/>\n",
        way, ink, width, opacity, arrow ? " marker-end=\"url(#tip)\"" : "");
  }
  void line(double x1, double y1, double x2, double y2, const char* ink, double width) {
    path(fmt::format("M{:.1f} {:.1f}L{:.1f} {:.1f}", x1, y1, x2, y2), ink, width);
  }
  std::string text(double width, double height) const {
    return fmt::format(
               "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" "
               "width=\"{0:.0f}\" height=\"{1:.0f}\" font-family=\"Inter, Helvetica, Arial, "
               "sans-serif\">\n<defs><marker id=\"tip\" viewBox=\"0 0 10 10\" refX=\"8\" "
               "refY=\"5\" "
               "markerWidth=\"5\" markerHeight=\"5\" orient=\"auto-start-reverse\"><path d=\"M0 "
               "0L10 "
               "5L0 10z\" fill=\"context-stroke\"/></marker></defs>\n<rect width=\"100%\" "
               "height=\"100%\" fill=\"#ffffff\"/>\n",
               width, height) +
           lines_ + body_ + "</svg>\n";
  }

 private:
  std::string lines_, body_;  // lines lie below boxes
};

double stroke(float bw) {
  return std::clamp(1.5 + std::log2(1 + bw / 12.0) * 1.1, 1.5, 8.0);
}

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

  /// Gives places to everything below `node`, from `x` on; returns where it ends.
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

  /// NVLinks below the GPUs. Returns the lowest line used.
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

constexpr std::array inks{"#22a559", "#2563c9", "#c2740a", "#9333b8",
                          "#d1435b", "#0e8f8f", "#7a8b13", "#5b6880"};

}  // namespace

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

std::string to_svg(const Graph& graph) {
  return MachinePicture(graph).draw();
}

std::string to_svg(const ChannelGraph& channels) {
  Canvas canvas;
  const double width = 760, height = 760, middle = width / 2, center = 410, radius = 250;
  const std::string title = fmt::format("{} · {} channels × {:g} GB/s", name(channels.pattern),
                                        channels.count(), channels.bw_intra);
  canvas.label(36, 40, title, 22, "#1b2433", "700", "start");
  std::vector<ChannelOrder> ways;
  std::vector<int> times;
  for (const ChannelOrder& order : channels.channels) {
    const auto known = std::find(ways.begin(), ways.end(), order);
    if (known == ways.end()) {
      ways.push_back(order);
      times.push_back(1);
    } else {
      ++times[known - ways.begin()];
    }
  }
  canvas.label(36, 62,
               fmt::format("{} different way{}; paths inside {}, to NICs {}", ways.size(),
                           ways.size() == 1 ? "" : "s", name(channels.type_intra),
                           name(channels.type_inter)),
               13, "#5b6880", "400", "start");
  if (ways.empty()) return canvas.text(width, 120);
  std::vector<int> ranks = ways[0].ranks;
  std::sort(ranks.begin(), ranks.end());
  std::map<int, std::pair<double, double>> at;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const double angle =
        2 * 3.14159265358979 * static_cast<double>(i) / static_cast<double>(ranks.size());
    at[ranks[i]] = {middle + radius * std::sin(angle), center - radius * std::cos(angle)};
  }
  for (std::size_t w = 0; w < ways.size(); ++w) {
    const char* ink = inks[w % inks.size()];
    const double bend = (static_cast<double>(w) - static_cast<double>(ways.size() - 1) / 2) * 14;
    const auto edge = [&](int a, int b) {
      const auto [x1, y1] = at[a];
      const auto [x2, y2] = at[b];
      const double length = std::max(1.0, std::hypot(x2 - x1, y2 - y1));
      const double ux = (x2 - x1) / length, uy = (y2 - y1) / length;
      const double cx = (x1 + x2) / 2 - uy * bend * 2, cy = (y1 + y2) / 2 + ux * bend * 2;
      canvas.path(fmt::format("M{:.1f} {:.1f}Q{:.1f} {:.1f} {:.1f} {:.1f}", x1 + ux * 38,
                              y1 + uy * 38, cx, cy, x2 - ux * 42, y2 - uy * 42),
                  ink, 2 + 0.25 * std::min(times[w], 12), 0.85, true);
    };
    const std::vector<int>& order = ways[w].ranks;
    const bool heads =
        channels.pattern == Pattern::nvls || channels.pattern == Pattern::collnet_direct;
    for (std::size_t i = 1; i < order.size(); ++i) edge(heads ? order[0] : order[i - 1], order[i]);
    if (channels.pattern == Pattern::ring && ways[w].net_in < 0 && order.size() > 1) {
      edge(order.back(), order.front());
    }
    const double y = 96 + 20 * static_cast<double>(w);
    if (y < height - 20) {
      canvas.line(width - 176, y - 4, width - 156, y - 4, ink, 4);
      canvas.label(width - 150, y,
                   ways[w].net_in < 0
                       ? fmt::format("{} channel{}", times[w], times[w] == 1 ? "" : "s")
                       : fmt::format("{} × NET {} → {}", times[w], ways[w].net_in, ways[w].net_out),
                   12, "#5b6880", "400", "start");
    }
  }
  for (const auto& [rank, place] : at) {
    canvas.box(place.first - 36, place.second - 24, 72, 48, "#1f7a4d", fmt::format("GPU {}", rank));
  }
  return canvas.text(width, height);
}

std::string trees_svg(int machines) {
  Canvas canvas;
  const double cell = std::clamp(1200.0 / std::max(machines, 1), 26.0, 72.0);
  const double width = std::max(560.0, cell * machines + 72);
  int depth = 1;
  while ((1 << depth) < machines) ++depth;
  const double block = 70 + 62.0 * (depth + 1);
  canvas.label(36, 40, fmt::format("Double binary tree over {} machines", machines), 22, "#1b2433",
               "700", "start");
  canvas.label(36, 62, "each carries half of the data; inner nodes of one are leaves of the other",
               13, "#5b6880", "400", "start");
  for (int twin = 0; twin < 2; ++twin) {
    const auto place = [&](int n) {
      return twin == 0 ? binary_tree(n, machines) : binary_twin(n, machines);
    };
    const auto level = [&](int n) {
      int up = 0;
      for (int p = place(n).parent; p >= 0; p = place(p).parent) ++up;
      return up;
    };
    const auto xy = [&](int n) {
      return std::pair(36 + cell * (n + 0.5), 110 + twin * block + 62.0 * level(n));
    };
    for (int n = 0; n < machines; ++n) {
      const auto [x, y] = xy(n);
      const int parent = place(n).parent;
      if (parent >= 0) {
        const auto [px, py] = xy(parent);
        canvas.line(x, y, px, py, inks[twin], 2.5);
      }
      const double half = std::min(cell * 0.42, 22.0);
      canvas.box(x - half, y - 14, 2 * half, 28, twin == 0 ? "#1f7a4d" : "#2456a6",
                 std::to_string(n));
    }
  }
  return canvas.text(width, 110 + 2 * block);
}

}  // namespace ccl::topo
