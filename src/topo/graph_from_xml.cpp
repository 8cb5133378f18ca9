#include <ccl/topo/xml.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <initializer_list>
#include <map>

namespace ccl::topo {
namespace {

/// Turns one `<system>` into a graph: first the tree of CPUs, PCI and devices, then the links
/// across.
class Loader {
 public:
  explicit Loader(const XmlFile& file) : file_(file) {}

  Result<LoadedGraph> run() {
    const Element& root = file_.root;
    if (root.name != "system") {
      return fail(
          Errc::invalid_argument,
          fmt::format("{}:{}: root element is <{}> (a machine is a <system>); {}", file_.name,
                      root.line, root.name,
                      root.name == "graphs" ? "load it as a graph file" : "check the file"));
    }
    CCL_TRY(loaded_.graph.version, integer(root, "version", 1, 0, 1000));
    CCL_CHECK(add_cpus(root));
    CCL_CHECK(check_ranks());
    connect_cpus();
    for (const auto& [element, node] : gpus_) CCL_CHECK(add_gpu_links(*element, node));
    CCL_CHECK(add_pci_links());
    repair_one_sided();
    name_unknown_wires();
    return std::move(loaded_);
  }

 private:
  void repair(int line, std::string what) { loaded_.repairs.push_back({line, std::move(what)}); }

  auto wrong(const Element& element, std::string_view attribute, std::string_view value,
             std::string_view why) {
    return fail(
        Errc::invalid_argument,
        fmt::format("{}:{}: <{}> {}=\"{}\" is refused ({}); correct it or leave it out", file_.name,
                    element.line, element.name, attribute, value.substr(0, 80), why));
  }

  Result<int> integer(const Element& element, std::string_view attribute, int fallback,
                      long long least, long long most) {
    const std::string* text = element.find(attribute);
    if (text == nullptr || text->empty()) return fallback;
    const bool minus = (*text)[0] == '-';
    std::string_view digits = std::string_view(*text).substr(minus ? 1 : 0);
    int base = 10;
    if (digits.size() > 2 && digits[0] == '0' && (digits[1] == 'x' || digits[1] == 'X')) {
      digits.remove_prefix(2);
      base = 16;
    }
    long long value = 0;
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
    // What follows a number, as in "18 " or "1.0", is dropped, as NCCL does.
    if (error != std::errc() || end == digits.data()) {
      return wrong(element, attribute, *text, "not a number");
    }
    if (minus) value = -value;
    if (value < least || value > most) {
      return wrong(element, attribute, *text, fmt::format("not within {} and {}", least, most));
    }
    return static_cast<int>(value);
  }

  Result<float> real(const Element& element, std::string_view attribute, float fallback) {
    const std::string* text = element.find(attribute);
    if (text == nullptr || text->empty()) return fallback;
    char* end = nullptr;
    const float value = std::strtof(text->c_str(), &end);
    if (end == text->c_str()) return wrong(element, attribute, *text, "not a number");
    if (!(value >= 0 && value < 1e9F)) return wrong(element, attribute, *text, "out of range");
    return value;
  }

  static std::string text(const Element& element, std::string_view attribute) {
    const std::string* found = element.find(attribute);
    return found == nullptr ? std::string() : *found;
  }

  static std::vector<std::pair<std::string, std::string>> others(
      const Element& element, std::initializer_list<std::string_view> used) {
    std::vector<std::pair<std::string, std::string>> rest;
    for (const auto& attribute : element.attributes) {
      if (std::find(used.begin(), used.end(), attribute.first) == used.end()) {
        rest.push_back(attribute);
      }
    }
    return rest;
  }

  Result<void> add_cpus(const Element& root) {
    Graph& graph = loaded_.graph;
    int adopted = -1;  // CPU made for devices that stand outside of any
    for (const Element& child : root.children) {
      if (child.name == "cpu") {
        CCL_TRY(const int cpu, add_cpu(child));
        for (const Element& below : child.children) CCL_CHECK(add_below(below, cpu));
      } else if (child.name == "pci" || child.name == "nic") {
        if (adopted < 0) {
          Node node;
          node.type = NodeType::cpu;
          node.id = 0x1000;  // not the number of a NUMA node
          adopted = graph.add(node);
          repair(child.line, "devices outside of any <cpu>: put below a CPU of unknown kind");
        }
        CCL_CHECK(add_below(child, adopted));
      } else {
        repair(child.line, fmt::format("unknown element <{}> left out", child.name));
      }
    }
    return {};
  }

  Result<int> add_cpu(const Element& element) {
    Graph& graph = loaded_.graph;
    Node node;
    node.type = NodeType::cpu;
    CCL_TRY(const int numa, integer(element, "numaid", 0, -1, 1 << 20));
    node.id = numa < 0 ? 0xffffffffffffffLL : numa;
    node.cpu.host_hash = text(element, "host_hash");
    if (!node.cpu.host_hash.empty()) {
      const auto [place, fresh] =
          hosts_.emplace(node.cpu.host_hash, static_cast<int>(hosts_.size()));
      static_cast<void>(fresh);
      node.host = place->second;
    }
    node.cpu.affinity = text(element, "affinity");
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
    node.others = others(
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

  Result<void> add_below(const Element& element, int parent) {
    if (element.name == "pci") return add_pci(element, parent);
    if (element.name == "nic") return add_nic(element, parent, nullptr);
    if (element.name == "gpu" || element.name == "net") {
      repair(element.line, fmt::format("<{}> outside of a <pci> left out", element.name));
      return {};
    }
    repair(element.line, fmt::format("unknown element <{}> left out", element.name));
    return {};
  }

  Result<void> add_pci(const Element& element, int parent) {
    Graph& graph = loaded_.graph;
    Node node;
    node.host = graph.nodes[parent].host;
    node.parent = parent;
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
    node.pci_others = others(element, {"busid", "class", "vendor", "device", "subsystem_vendor",
                                       "subsystem_device", "link_speed", "link_width"});

    const Element* gpu = nullptr;
    const Element* nic = nullptr;
    for (const Element& child : element.children) {
      if (child.name == "gpu") gpu = &child;
      if (child.name == "nic") nic = &child;
    }
    if (gpu != nullptr) {
      node.type = NodeType::gpu;
      CCL_TRY(node.gpu.dev, integer(*gpu, "dev", -1, -1, 1 << 20));
      CCL_TRY(node.gpu.sm, integer(*gpu, "sm", 0, 0, 10000));
      CCL_TRY(node.gpu.rank, integer(*gpu, "rank", -1, -1, 1 << 24));
      CCL_TRY(const int gdr, integer(*gpu, "gdr", 0, -1, 1000));
      node.gpu.gdr = gdr > 0;
      node.gpu.gcn = text(*gpu, "gcn");
      node.gpu.arch = text(*gpu, "arch");
      node.others = others(*gpu, {"dev", "sm", "rank", "gdr", "gcn", "arch"});
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
        repair(element.line, fmt::format("second <pci busid=\"{}\">: its devices join the first",
                                         node.pci.bus_id));
        for (const Element& child : element.children) CCL_CHECK(add_below(child, first));
        return {};
      }
      repair(element.line, fmt::format("second <pci busid=\"{}\"> left out", node.pci.bus_id));
      return {};
    }
    float bw = pcie_bw(node.pci.link_speed, node.pci.link_width == 0 ? 16 : node.pci.link_width);
    if (bw == 0 || node.pci.link_width == 0) {
      if (bw == 0) bw = pcie_bw("8.0 GT/s", node.pci.link_width == 0 ? 16 : node.pci.link_width);
      repair(element.line,
             fmt::format("{}: PCIe speed \"{}\" width {}: taken as {:g} GB/s", node.pci.bus_id,
                         node.pci.link_speed, node.pci.link_width, bw));
    }
    const NodeType type = node.type;
    const std::string bus_id = node.pci.bus_id;
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

  Result<void> add_nic(const Element& element, int parent, const int* known) {
    Graph& graph = loaded_.graph;
    int nic = -1;
    if (known != nullptr) {
      nic = *known;
    } else {
      Node node;
      node.type = NodeType::nic;
      node.parent = parent;
      node.host = graph.nodes[parent].host;
      node.id = static_cast<std::int64_t>(loose_nics_++);
      nic = graph.add(std::move(node));
      graph.connect(nic, parent, LinkType::pci, gbps::loc);
      graph.connect(parent, nic, LinkType::pci, gbps::loc);
    }
    return add_nets(element, nic);
  }

  Result<void> add_nets(const Element& element, int nic) {
    Graph& graph = loaded_.graph;
    for (const Element& child : element.children) {
      if (child.name != "net") {
        // GIN and RMA devices are the same hardware under other names.
        if (child.name != "gin" && child.name != "rma") {
          repair(child.line, fmt::format("unknown element <{}> left out", child.name));
        }
        continue;
      }
      Node node;
      node.type = NodeType::net;
      node.parent = nic;
      node.host = graph.nodes[nic].host;
      node.net.name = text(child, "name");
      CCL_TRY(node.net.dev, integer(child, "dev", -1, -1, 1 << 24));
      if (node.net.dev < 0) {
        node.net.dev = static_cast<int>(graph.of(NodeType::net).size());
        repair(child.line, fmt::format("<net name=\"{}\"> without dev: numbered {}", node.net.name,
                                       node.net.dev));
      }
      node.id = node.net.dev;
      for (const int net : graph.of(NodeType::net)) {
        if (graph.nodes[net].id == node.id && graph.nodes[net].host == node.host) {
          return wrong(child, "dev", std::to_string(node.net.dev), "another <net> has it");
        }
      }
      CCL_TRY(int mbps, integer(child, "speed", 0, -1, 2000000000));
      if (mbps <= 0) {
        mbps = 10000;
        repair(child.line,
               fmt::format("<net name=\"{}\"> without speed: taken as 10 Gbit/s", node.net.name));
      }
      node.net.bw = static_cast<float>(mbps) / 8000.0F;
      CCL_TRY(node.net.port, integer(child, "port", 0, -1, 1 << 24));
      CCL_TRY(node.net.latency, real(child, "latency", 0));
      CCL_TRY(node.net.max_connections, integer(child, "maxconn", 0, 0, 0x7fffffff));
      CCL_TRY(const int gdr, integer(child, "gdr", 0, -1, 1000));
      CCL_TRY(const int coll, integer(child, "coll", 0, -1, 1000));
      node.net.gdr = gdr > 0;
      node.net.coll = coll > 0;
      const std::string guid = text(child, "guid");
      if (!guid.empty()) {
        char* end = nullptr;
        node.net.guid = std::strtoull(guid.c_str(), &end, 16);
        if (end == guid.c_str()) return wrong(child, "guid", guid, "not a hexadecimal number");
      }
      node.others = others(
          child, {"name", "dev", "latency", "speed", "port", "guid", "maxconn", "gdr", "coll"});
      const float bw = node.net.bw;
      const int net = graph.add(std::move(node));
      net_lines_[net] = child.line;
      graph.connect(nic, net, LinkType::net, bw);
      graph.connect(net, nic, LinkType::net, bw);
    }
    return {};
  }

  Result<void> check_ranks() {
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

  void connect_cpus() {
    Graph& graph = loaded_.graph;
    const std::vector<int> cpus = graph.of(NodeType::cpu);
    for (const int a : cpus) {
      for (const int b : cpus) {
        if (a == b || graph.nodes[a].host != graph.nodes[b].host) continue;
        graph.connect(a, b, LinkType::sys, sys_bw(graph.nodes[a].cpu));
      }
    }
  }

  static float link_bw(const Node& node, const Element& link) {
    return link.name == "nvlink" ? nvlink_bw(node.gpu.sm) : xgmi_bw(node.gpu.gcn);
  }

  Result<void> add_gpu_links(const Element& gpu, int node) {
    Graph& graph = loaded_.graph;
    for (const Element& link : gpu.children) {
      if (link.name == "c2c") {
        CCL_TRY(const float each, real(link, "bw", 0));  // MB/s
        CCL_TRY(const int count, integer(link, "count", 1, 0, 1 << 10));
        int cpu = node;
        while (cpu >= 0 && graph.nodes[cpu].type != NodeType::cpu) cpu = graph.nodes[cpu].parent;
        const float bw = each * static_cast<float>(count) / 1000;
        if (bw <= 0) {
          repair(link.line,
                 fmt::format("<c2c> of {} without bandwidth left out", graph.label(node)));
          continue;
        }
        graph.connect(node, cpu, LinkType::c2c, bw);
        graph.connect(cpu, node, LinkType::c2c, bw);
        continue;
      }
      if (link.name != "nvlink" && link.name != "xgmi") {
        repair(link.line, fmt::format("unknown element <{}> left out", link.name));
        continue;
      }
      CCL_TRY(const int count, integer(link, "count", 1, -1, 1 << 10));
      if (count <= 0) {
        repair(link.line, fmt::format("<{}> of {} with count {} left out", link.name,
                                      graph.label(node), count));
        continue;
      }
      const float bw = static_cast<float>(count) * link_bw(graph.nodes[node], link);
      const std::string target_class = text(link, "tclass");
      const std::string target = text(link, "target");
      if (target_class.rfind("0x068000", 0) == 0) {
        if (graph.nodes[node].host != nvs_host_ || nvs_ < 0) {
          Node nvs;
          nvs.type = NodeType::nvs;
          nvs.host = graph.nodes[node].host;
          nvs_host_ = nvs.host;
          nvs_ = graph.add(std::move(nvs));
        }
        graph.connect(node, nvs_, LinkType::nvl, bw);
        graph.connect(nvs_, node, LinkType::nvl, bw);
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

  Result<void> add_pci_links() {
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

  void repair_one_sided() {
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

  // NETs of one guid and port share one wire. Guid 0 says nothing, so such a NET has its own.
  void name_unknown_wires() {
    int first = -1;
    int count = 0;
    for (const int net : loaded_.graph.of(NodeType::net)) {
      if (loaded_.graph.nodes[net].net.guid != 0) continue;
      if (count++ == 0) first = net;
    }
    if (count > 1) {
      repair(net_lines_[first],
             fmt::format("{} NETs have no guid: each taken as a wire of its own", count));
    }
  }

  const XmlFile& file_;
  LoadedGraph loaded_;
  std::map<std::string, int> hosts_;
  std::map<std::pair<int, std::int64_t>, int> by_bus_id_;
  std::vector<std::pair<const Element*, int>> gpus_, pci_links_;
  std::map<std::pair<int, int>, int> peer_lines_;
  std::map<int, int> net_lines_;
  int loose_nics_ = 0;
  int nvs_ = -1;
  int nvs_host_ = -1;
};

}  // namespace

Result<LoadedGraph> to_graph(const XmlFile& file) {
  return Loader(file).run();
}

Result<LoadedGraph> load_graph(const std::string& path) {
  CCL_TRY(const XmlFile file, read_xml(path));
  return to_graph(file);
}

}  // namespace ccl::topo
