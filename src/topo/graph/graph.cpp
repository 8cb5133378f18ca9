#include <ccl/topo/graph.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "base/text.hpp"

namespace ccl::topo {
namespace {
struct Named {
  PathType type;
  const char* text;
};
constexpr std::array<Named, 12> path_names{{{PathType::loc, "LOC"},
                                            {PathType::nvl, "NVL"},
                                            {PathType::nvb, "NVB"},
                                            {PathType::c2c, "C2C"},
                                            {PathType::pix, "PIX"},
                                            {PathType::pxb, "PXB"},
                                            {PathType::p2c, "P2C"},
                                            {PathType::pxn, "PXN"},
                                            {PathType::phb, "PHB"},
                                            {PathType::sys, "SYS"},
                                            {PathType::net, "NET"},
                                            {PathType::dis, "DIS"}}};
}  // namespace

std::string_view name(NodeType type) {
  switch (type) {
    case NodeType::gpu:
      return "GPU";
    case NodeType::pci:
      return "PCI";
    case NodeType::nvs:
      return "NVS";
    case NodeType::cpu:
      return "CPU";
    case NodeType::nic:
      return "NIC";
    case NodeType::net:
      return "NET";
  }
  return "?";
}

std::string_view name(LinkType type) {
  switch (type) {
    case LinkType::loc:
      return "LOC";
    case LinkType::nvl:
      return "NVL";
    case LinkType::c2c:
      return "C2C";
    case LinkType::pci:
      return "PCI";
    case LinkType::sys:
      return "SYS";
    case LinkType::net:
      return "NET";
  }
  return "?";
}

std::string_view name(PathType type) {
  for (const Named& known : path_names) {
    if (known.type == type) return known.text;
  }
  return "?";
}

bool parse(std::string_view text, PathType& type) {
  const std::string upper = ccl::detail::upper(text);
  for (const Named& known : path_names) {
    if (upper == known.text) {
      type = known.type;
      return true;
    }
  }
  return false;
}

void Graph::connect(int from, int to, LinkType type, float bw) {
  std::vector<int>& out = nodes[from].out;
  auto link = std::find_if(out.begin(), out.end(),
                           [&](int l) { return links[l].to == to && links[l].type == type; });
  int index = 0;
  if (link != out.end()) {
    index = *link;
    out.erase(link);
    links[index].bw += bw;
  } else {
    index = static_cast<int>(links.size());
    links.push_back({type, bw, from, to});
  }
  const auto place =
      std::find_if(out.begin(), out.end(), [&](int l) { return links[l].bw < links[index].bw; });
  out.insert(place, index);
}

std::vector<int> Graph::of(NodeType type) const {
  std::vector<int> found;
  for (int n = 0; n < static_cast<int>(nodes.size()); ++n) {
    if (nodes[n].type == type) found.push_back(n);
  }
  return found;
}

int Graph::gpu_of_rank(int rank) const {
  for (int n = 0; n < static_cast<int>(nodes.size()); ++n) {
    if (nodes[n].type == NodeType::gpu && nodes[n].gpu.rank == rank) return n;
  }
  return -1;
}

int Graph::min_sm() const {
  int least = 0;
  for (const Node& node : nodes) {
    if (node.type != NodeType::gpu) continue;
    least = least == 0 ? node.gpu.sm : std::min(least, node.gpu.sm);
  }
  return least;
}

std::string Graph::label(int node) const {
  const Node& n = nodes[node];
  return fmt::format("{}/{}-{:x}", name(n.type), n.host, static_cast<std::uint64_t>(n.id));
}

float nvlink_bw(int sm) {
  if (sm >= 100) return gbps::nvlink_sm100;
  if (sm >= 90) return gbps::nvlink_sm90;
  if (sm == 86) return gbps::nvlink_sm86;
  if (sm >= 70) return gbps::nvlink_sm70;
  if (sm >= 60) return gbps::nvlink_sm60;
  return gbps::nvlink_sm70;
}

float xgmi_bw(std::string_view gcn) {
  const int digits = std::atoi(std::string(gcn.substr(gcn.rfind("gfx", 0) == 0 ? 3 : 0)).c_str());
  if (gcn.rfind("gfx90a", 0) == 0 || digits == 910) return gbps::xgmi_mi200;
  return digits >= 940 ? gbps::xgmi_mi300 : gbps::xgmi_vega;
}

float sys_bw(const Node::Cpu& cpu) {
  if (cpu.arch == CpuArch::power) return gbps::sys_power9;
  if (cpu.arch == CpuArch::arm) return gbps::sys_arm;
  if (cpu.arch != CpuArch::x86) return gbps::sys_other;
  switch (cpu.vendor) {
    case CpuVendor::intel:
      if (cpu.family == 6 && cpu.model >= 0xcf) return gbps::sys_emerald_rapids;
      if (cpu.family == 6 && cpu.model >= 0x8f) return gbps::sys_sapphire_rapids;
      if (cpu.family == 6 && cpu.model >= 0x55) return gbps::sys_skylake;
      return gbps::sys_broadwell;
    case CpuVendor::amd:
      return gbps::sys_amd;
    case CpuVendor::zhaoxin:
      return cpu.family == 7 && cpu.model == 0x5b ? gbps::sys_yongfeng : gbps::sys_zhaoxin;
    case CpuVendor::other:
      break;
  }
  return gbps::sys_other;
}

float pcie_bw(std::string_view speed, int width) {
  const auto [transfers, size] = ccl::detail::leading_number(speed);
  if (size == 0 || speed.substr(size, 5) != " GT/s") return 0;
  // Payload per lane in units of 0.1 Gbit/s after encoding and headers, generations 1 to 6.
  constexpr std::array<std::array<double, 2>, 6> lanes{
      {{2.5, 15}, {5, 30}, {8, 60}, {16, 120}, {32, 240}, {64, 480}}};
  for (const auto& lane : lanes) {
    if (transfers == lane[0]) return static_cast<float>(width * lane[1] / 80.0);
  }
  return 0;
}

}  // namespace ccl::topo
