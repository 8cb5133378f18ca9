#include <algorithm>
#include <string_view>
#include <utility>

#include "topo/xml/loader.hpp"

namespace ccl::topo::detail {

Result<LoadedGraph> Loader::run() {
  const Element& root = file_.root;
  if (root.name != "system") {
    return fail(Errc::invalid_argument,
                fmt::format("{}:{}: root element is <{}> (a machine is a <system>); {}", file_.name,
                            root.line, root.name,
                            root.name == "graphs" ? "a graph file goes into CCL_GRAPH_FILE"
                                                  : "check the file"));
  }
  CCL_TRY(const int version, integer(root, "version", 1, 0, 1000));
  const bool known = version == 1 || version == 2;
  loaded_.graph.version = known ? version : 1;
  if (!known) {
    repair(root.line,
           fmt::format("<system> of version {} (1 and 2 are known): taken as 1", version));
  }
  CCL_CHECK(add_cpus(root));
  CCL_CHECK(check_ranks());
  number_nets();
  connect_cpus();
  for (const auto& [element, node] : gpus_) CCL_CHECK(add_gpu_links(*element, node));
  CCL_CHECK(add_pci_links());
  repair_one_sided();
  name_unknown_wires();
  return std::move(loaded_);
}

Result<void> Loader::add_cpus(const Element& root) {
  Graph& graph = loaded_.graph;
  int adopted = -1;  // CPU made for devices outside of any
  for (const Element& child : root.children) {
    if (child.name == "cpu") {
      CCL_TRY(const int cpu, add_cpu(child));
      for (const Element& below : child.children) CCL_CHECK(add_below(below, cpu));
    } else if (child.name == "pci" || child.name == "nic") {
      if (adopted < 0) {
        Node node;
        node.type = NodeType::cpu;
        node.id = 0x1000;  // no number of a NUMA node
        adopted = graph.add(node);
        repair(child.line, "devices outside of any <cpu>: put below a CPU of unknown kind");
      }
      CCL_CHECK(add_below(child, adopted));
    } else {
      leave_out(child);
    }
  }
  return {};
}

void Loader::leave_out(const Element& element) {
  constexpr std::pair<std::string_view, std::string_view> places[] = {
      {"cpu", "the <system>"},
      {"pci", "a <cpu> or a <pci>"},
      {"gpu", "a <pci>"},
      {"nic", "a <pci> or a <cpu>"},
      {"net", "the <nic> of a <pci>"},
      {"gin", "a <nic>"},
      {"rma", "a <nic>"},
      {"nvlink", "a <gpu>"},
      {"xgmi", "a <gpu>"},
      {"c2c", "a <gpu>"},
      {"pcilink", "a <pci>"}};
  for (const auto& [name, place] : places) {
    if (element.name != name) continue;
    repair(element.line, fmt::format("<{}> left out, as it belongs in {}", name, place));
    return;
  }
  repair(element.line, fmt::format("unknown element <{}> left out", element.name));
}

Result<int> Loader::add_cpu(const Element& element) {
  Graph& graph = loaded_.graph;
  Node node;
  node.type = NodeType::cpu;
  CCL_TRY(const int numa, integer(element, "numaid", 0, -1, 1 << 20));
  node.id = numa < 0 ? 0xffffffffffffffLL : numa;
  node.cpu.host_hash = text(element, "host_hash");
  if (!node.cpu.host_hash.empty()) {
    const auto [place, fresh] = hosts_.emplace(node.cpu.host_hash, static_cast<int>(hosts_.size()));
    static_cast<void>(fresh);
    node.host = place->second;
  }
  node.cpu.affinity = text(element, "affinity");
  if (node.cpu.affinity.find_first_not_of("0123456789abcdefABCDEFx,") != std::string::npos) {
    repair(element.line, fmt::format("<cpu> affinity=\"{}\" is no mask of cores: left out",
                                     ccl::detail::shortened(node.cpu.affinity, 80)));
    node.cpu.affinity.clear();
  }
  node.cpu.arch_name = text(element, "arch");
  node.cpu.vendor_name = text(element, "vendor");
  const std::string& arch = node.cpu.arch_name;
  node.cpu.arch = arch == "x86_64"  ? CpuArch::x86
                  : arch == "ppc64" ? CpuArch::power
                  : arch == "arm64" ? CpuArch::arm
                                    : CpuArch::other;
  const std::string& vendor = node.cpu.vendor_name;
  node.cpu.vendor = vendor == "GenuineIntel"                               ? CpuVendor::intel
                    : vendor == "AuthenticAMD"                             ? CpuVendor::amd
                    : vendor == "CentaurHauls" || vendor == "  Shanghai  " ? CpuVendor::zhaoxin
                                                                           : CpuVendor::other;
  if (node.cpu.arch == CpuArch::other) {
    repair(element.line, fmt::format("<cpu> arch=\"{}\" unknown: links between CPUs get {} GB/s",
                                     arch, gbps::sys_other));
  }
  CCL_TRY(node.cpu.family, integer(element, "familyid", 0, 0, 1 << 20));
  CCL_TRY(node.cpu.model, integer(element, "modelid", 0, 0, 1 << 20));
  node.others = attributes_but(
      element, {"numaid", "host_hash", "affinity", "arch", "vendor", "familyid", "modelid"});
  for (const int cpu : graph.of(NodeType::cpu)) {
    if (graph.nodes[cpu].id == node.id && graph.nodes[cpu].host == node.host) {
      repair(element.line,
             fmt::format("second <cpu> of NUMA node {}: merged with the first", numa));
      return cpu;
    }
  }
  return graph.add(std::move(node));
}

Result<void> Loader::add_below(const Element& element, int parent) {
  if (element.name == "pci") return add_pci(element, parent);
  if (element.name == "nic") return add_nic(element, parent, nullptr);
  leave_out(element);
  return {};
}

Result<void> Loader::read_pci(const Element& element, Node& node) {
  node.pci.bus_id = text(element, "busid");
  if (!parse_bus_id(node.pci.bus_id, node.id)) {
    return wrong(element, "busid", node.pci.bus_id, "not a PCI bus id such as 0000:3b:00.0");
  }
  node.pci.device_class = text(element, "class");
  node.pci.vendor = text(element, "vendor");
  node.pci.device = text(element, "device");
  node.pci.subsystem_vendor = text(element, "subsystem_vendor");
  node.pci.subsystem_device = text(element, "subsystem_device");
  node.pci.link_speed = text(element, "link_speed");
  CCL_TRY(node.pci.link_width, integer(element, "link_width", 0, 0, 1 << 10));
  node.pci_others =
      attributes_but(element, {"busid", "class", "vendor", "device", "subsystem_vendor",
                               "subsystem_device", "link_speed", "link_width"});
  return {};
}

Result<void> Loader::read_gpu(const Element& element, Node& node) {
  node.type = NodeType::gpu;
  CCL_TRY(node.gpu.dev, integer(element, "dev", -1, -1, 1 << 20));
  CCL_TRY(node.gpu.sm, integer(element, "sm", 0, 0, 10000));
  CCL_TRY(node.gpu.rank, integer(element, "rank", -1, -1, 1 << 24));
  CCL_TRY(const int gdr, integer(element, "gdr", 0, -1, 1000));
  node.gpu.gdr = gdr > 0;
  node.gpu.gcn = text(element, "gcn");
  node.gpu.arch = text(element, "arch");
  node.others = attributes_but(element, {"dev", "sm", "rank", "gdr", "gcn", "arch"});
  return {};
}

float Loader::pci_bandwidth(const Element& element, const Node::Pci& pci) {
  constexpr int max_width = 64;  // 255 if a virtual machine has no information
  const bool known = pci.link_width > 0 && pci.link_width <= max_width;
  const int width = known ? pci.link_width : 16;
  float bw = pcie_bw(pci.link_speed, width);
  if (bw == 0 || !known) {
    if (bw == 0) bw = pcie_bw("8.0 GT/s", width);
    repair(element.line, fmt::format("{}: PCIe speed \"{}\" width {}: taken as {:g} GB/s",
                                     pci.bus_id, pci.link_speed, pci.link_width, bw));
  }
  return bw;
}

Result<void> Loader::add_pci(const Element& element, int parent) {
  Graph& graph = loaded_.graph;
  Node node;
  node.host = graph.nodes[parent].host;
  node.parent = parent;
  CCL_CHECK(read_pci(element, node));
  const Element* gpu = nullptr;
  const Element* nic = nullptr;
  for (const Element& child : element.children) {
    if (child.name == "gpu" && gpu == nullptr) gpu = &child;
    if (child.name == "nic" && nic == nullptr) nic = &child;
  }
  // A PCI function with a GPU or NIC has no other device.
  const Element* device = gpu != nullptr ? gpu : nic;
  for (const Element& child : element.children) {
    if (device == nullptr || &child == device) continue;
    repair(child.line, fmt::format("<{}> beside the <{}> of {} left out", child.name, device->name,
                                   node.pci.bus_id));
  }
  if (gpu != nullptr) {
    CCL_CHECK(read_gpu(*gpu, node));
  } else if (nic != nullptr) {
    node.type = NodeType::nic;
    node.id &= ~std::int64_t{0xf};  // the ports of a NIC are functions of one device
  } else {
    node.type = NodeType::pci;
  }
  const auto [twin, fresh] = by_bus_id_.emplace(std::pair(node.host, node.id), -1);
  if (!fresh) {
    const int first = twin->second;
    if (node.type == NodeType::nic && graph.nodes[first].type == NodeType::nic) {
      return add_nic(*nic, parent, &first);
    }
    if (node.type == NodeType::pci && graph.nodes[first].type == NodeType::pci) {
      repair(element.line,
             fmt::format("second <pci busid=\"{}\">: its devices join the first", node.pci.bus_id));
      for (const Element& child : element.children) CCL_CHECK(add_below(child, first));
      return {};
    }
    repair(element.line, fmt::format("second <pci busid=\"{}\"> left out", node.pci.bus_id));
    return {};
  }
  const float bw = pci_bandwidth(element, node.pci);
  const NodeType type = node.type;
  const int index = graph.add(std::move(node));
  twin->second = index;
  graph.connect(index, parent, LinkType::pci, bw);
  graph.connect(parent, index, LinkType::pci, bw);
  if (type == NodeType::gpu) {
    gpus_.emplace_back(gpu, index);
    return {};
  }
  if (type == NodeType::nic) return add_nets(*nic, index);
  for (const Element& child : element.children) {
    if (child.name == "pcilink") {
      pci_links_.emplace_back(&child, index);
    } else {
      CCL_CHECK(add_below(child, index));
    }
  }
  return {};
}

Result<void> Loader::check_ranks() {
  Graph& graph = loaded_.graph;
  const bool none = std::all_of(gpus_.begin(), gpus_.end(), [&](const auto& gpu) {
    return graph.nodes[gpu.second].gpu.rank < 0;
  });
  if (none && !gpus_.empty()) {
    repair(gpus_.front().first->line, "no <gpu> has a rank: numbered in the order of the file");
    int rank = 0;
    for (const auto& gpu : gpus_) graph.nodes[gpu.second].gpu.rank = rank++;
    return {};
  }
  std::map<int, int> seen;
  for (const auto& [element, node] : gpus_) {
    const int rank = graph.nodes[node].gpu.rank;
    if (rank < 0) {
      repair(element->line, fmt::format("{} has no rank: takes no part", graph.label(node)));
      continue;
    }
    const auto [other, fresh] = seen.emplace(rank, node);
    if (!fresh) {
      return wrong(*element, "rank", std::to_string(rank),
                   fmt::format("{} has it too", graph.label(other->second)));
    }
  }
  return {};
}

}  // namespace ccl::topo::detail

namespace ccl::topo {

Result<LoadedGraph> to_graph(const XmlFile& file) {
  return detail::Loader(file).run();
}

Result<LoadedGraph> load_graph(const std::string& path) {
  CCL_TRY(const XmlFile file, read_xml(path));
  return to_graph(file);
}

}  // namespace ccl::topo
