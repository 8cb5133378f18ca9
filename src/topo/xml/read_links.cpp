#include <algorithm>

#include "topo/xml/loader.hpp"

namespace ccl::topo::detail {

namespace {

float link_bw(const Node& node, const Element& link) {
  return link.name == "nvlink" ? nvlink_bw(node.gpu.sm) : xgmi_bw(node.gpu.gcn);
}

}  // namespace

void Loader::connect_cpus() {
  Graph& graph = loaded_.graph;
  const std::vector<int> cpus = graph.of(NodeType::cpu);
  for (const int a : cpus) {
    for (const int b : cpus) {
      if (a == b || graph.nodes[a].host != graph.nodes[b].host) continue;
      graph.connect(a, b, LinkType::sys, sys_bw(graph.nodes[a].cpu));
    }
  }
}

Result<void> Loader::add_gpu_links(const Element& gpu, int node) {
  Graph& graph = loaded_.graph;
  for (const Element& link : gpu.children) {
    leave_out_below(link);
    if (link.name == "c2c") {
      CCL_TRY(const float each, real(link, "bw", 0));  // MB/s
      CCL_TRY(const int count, integer(link, "count", 1, 0, 1 << 10));
      int cpu = node;
      while (cpu >= 0 && graph.nodes[cpu].type != NodeType::cpu) cpu = graph.nodes[cpu].parent;
      const float bw = each * static_cast<float>(count) / 1000;
      if (bw <= 0) {
        repair(link.line, fmt::format("<c2c> of {} without bandwidth left out", graph.label(node)));
        continue;
      }
      graph.connect(node, cpu, LinkType::c2c, bw);
      graph.connect(cpu, node, LinkType::c2c, bw);
      continue;
    }
    if (link.name != "nvlink" && link.name != "xgmi") {
      leave_out(link);
      continue;
    }
    CCL_TRY(const int count, integer(link, "count", 1, -1, 1 << 10));
    if (count <= 0) {
      repair(link.line,
             fmt::format("<{}> of {} with count {} left out", link.name, graph.label(node), count));
      continue;
    }
    const float bw = static_cast<float>(count) * link_bw(graph.nodes[node], link);
    const std::string target_class = text(link, "tclass");
    const std::string target = text(link, "target");
    if (target_class.rfind("0x068000", 0) == 0) {
      const int nvs = nvswitch_of(node);
      graph.connect(node, nvs, LinkType::nvl, bw);
      graph.connect(nvs, node, LinkType::nvl, bw);
      continue;
    }
    if (target_class.rfind("0x068001", 0) == 0) {
      int cpu = node;
      while (cpu >= 0 && graph.nodes[cpu].type != NodeType::cpu) cpu = graph.nodes[cpu].parent;
      graph.connect(node, cpu, LinkType::nvl, bw);
      graph.connect(cpu, node, LinkType::nvl, bw);
      continue;
    }
    std::int64_t id = 0;
    if (!parse_bus_id(target, id)) {
      return wrong(link, "target", target, "not a PCI bus id such as 0000:3b:00.0");
    }
    const auto remote = by_bus_id_.find(std::pair(graph.nodes[node].host, id));
    if (remote == by_bus_id_.end() || graph.nodes[remote->second].type != NodeType::gpu) {
      repair(link.line, fmt::format("link of {} to {}, which is no GPU here, left out",
                                    graph.label(node), target));
      continue;
    }
    if (remote->second == node) {
      repair(link.line, fmt::format("link of {} to itself left out", graph.label(node)));
      continue;
    }
    graph.connect(node, remote->second, LinkType::nvl, bw);
    peer_lines_[std::pair(node, remote->second)] = link.line;
  }
  return {};
}

/// The NVSwitches of a fabric are one node, even if the fabric spans hosts.
int Loader::nvswitch_of(int gpu) {
  Graph& graph = loaded_.graph;
  std::string fabric;
  for (const auto& [key, value] : graph.nodes[gpu].others) {
    if (key == "fabric") fabric = value;
  }
  const auto [place, fresh] = fabrics_.emplace(std::move(fabric), -1);
  if (fresh) {
    Node nvs;
    nvs.type = NodeType::nvs;
    nvs.id = static_cast<std::int64_t>(fabrics_.size()) - 1;
    nvs.host = graph.nodes[gpu].host;
    place->second = graph.add(std::move(nvs));
  }
  return place->second;
}

Result<void> Loader::add_pci_links() {
  Graph& graph = loaded_.graph;
  for (const auto& [element, node] : pci_links_) {
    std::int64_t id = 0;
    const std::string target = text(*element, "target");
    if (!parse_bus_id(target, id)) {
      return wrong(*element, "target", target, "not a PCI bus id such as 0000:3b:00.0");
    }
    const auto remote = by_bus_id_.find(std::pair(graph.nodes[node].host, id));
    if (remote == by_bus_id_.end() || remote->second == node) {
      repair(element->line, fmt::format("<pcilink> of {} to {} left out (no such switch)",
                                        graph.label(node), target));
      continue;
    }
    graph.connect(node, remote->second, LinkType::loc, gbps::loc);
  }
  return {};
}

void Loader::repair_one_sided() {
  Graph& graph = loaded_.graph;
  for (const auto& [pair, line] : peer_lines_) {
    const auto [from, to] = pair;
    const auto bandwidth = [&](int a, int b) {
      for (const int l : graph.nodes[a].out) {
        if (graph.links[l].to == b && graph.links[l].type == LinkType::nvl)
          return graph.links[l].bw;
      }
      return 0.0F;
    };
    const float forth = bandwidth(from, to);
    const float back = bandwidth(to, from);
    if (back == 0) {
      graph.connect(to, from, LinkType::nvl, forth);
      repair(line, fmt::format("{} links to {}, but not back: taken as both ways",
                               graph.label(from), graph.label(to)));
    } else if (forth < back) {
      repair(line, fmt::format("{} to {} has {:g} GB/s, the way back {:g}: kept as it is, check "
                               "the links",
                               graph.label(from), graph.label(to), forth, back));
    }
  }
}

}  // namespace ccl::topo::detail
