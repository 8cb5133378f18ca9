#include <ccl/topo/xml.hpp>

#include <fmt/format.h>

namespace ccl::topo {
namespace {

class Writer {
 public:
  explicit Writer(const Graph& graph) : graph_(graph), children_(graph.nodes.size()) {
    for (int n = 0; n < static_cast<int>(graph.nodes.size()); ++n) {
      if (graph.nodes[n].parent >= 0) children_[graph.nodes[n].parent].push_back(n);
    }
  }

  Element system() const {
    Element root;
    root.name = "system";
    root.set("version", std::to_string(graph_.version));
    for (const int cpu : graph_.of(NodeType::cpu)) root.children.push_back(element(cpu));
    return root;
  }

 private:
  static std::string hex(std::uint64_t value) { return fmt::format("{:#x}", value); }

  static void set_known(Element& element, std::string_view attribute, const std::string& value) {
    if (!value.empty()) element.set(attribute, value);
  }

  static void set_all(Element& element,
                      const std::vector<std::pair<std::string, std::string>>& attributes) {
    for (const auto& [key, value] : attributes) element.set(key, value);
  }

  /// Name that reads back as the same kind of CPU, also if the file had none.
  static std::string arch(const Node::Cpu& cpu) {
    if (!cpu.arch_name.empty()) return cpu.arch_name;
    return cpu.arch == CpuArch::x86     ? "x86_64"
           : cpu.arch == CpuArch::power ? "ppc64"
           : cpu.arch == CpuArch::arm   ? "arm64"
                                        : "other";
  }

  Element element(int n) const {
    const Node& node = graph_.nodes[n];
    Element out;
    if (node.type == NodeType::cpu) {
      out.name = "cpu";
      set_known(out, "host_hash", node.cpu.host_hash);
      out.set("numaid", node.id == 0xffffffffffffffLL ? "-1" : std::to_string(node.id));
      set_known(out, "affinity", node.cpu.affinity);
      out.set("arch", arch(node.cpu));
      set_known(out, "vendor", node.cpu.vendor_name);
      out.set("familyid", std::to_string(node.cpu.family));
      out.set("modelid", std::to_string(node.cpu.model));
      set_all(out, node.others);
      add_children(out, n);
      return out;
    }
    if (node.type == NodeType::net) {
      out.name = "net";
      out.set("name", node.net.name);
      out.set("dev", std::to_string(node.net.dev));
      out.set("latency", fmt::format("{:f}", node.net.latency));
      out.set("speed", fmt::format("{:.0f}", node.net.bw * 8000));
      out.set("port", std::to_string(node.net.port));
      out.set("guid", hex(node.net.guid));
      out.set("maxconn", std::to_string(node.net.max_connections));
      out.set("gdr", node.net.gdr ? "1" : "0");
      if (node.net.coll) out.set("coll", "1");
      set_all(out, node.others);
      return out;
    }
    Element nic;
    nic.name = "nic";
    if (node.type == NodeType::nic) {
      add_children(nic, n);
      for (const auto& [kept, attributes] : node.kept) {
        Element same;
        same.name = kept;
        set_all(same, attributes);
        nic.children.push_back(std::move(same));
      }
      if (node.pci.bus_id.empty()) return nic;
    }
    out.name = "pci";
    out.set("busid", node.pci.bus_id);
    set_known(out, "class", node.pci.device_class);
    set_known(out, "vendor", node.pci.vendor);
    set_known(out, "device", node.pci.device);
    set_known(out, "subsystem_vendor", node.pci.subsystem_vendor);
    set_known(out, "subsystem_device", node.pci.subsystem_device);
    out.set("link_speed", node.pci.link_speed);
    out.set("link_width", std::to_string(node.pci.link_width));
    set_all(out, node.pci_others);
    if (node.type == NodeType::nic) out.children.push_back(std::move(nic));
    if (node.type == NodeType::gpu) out.children.push_back(gpu(node));
    if (node.type == NodeType::pci) {
      for (const int l : node.out) {
        if (graph_.links[l].type != LinkType::loc) continue;
        Element link;
        link.name = "pcilink";
        link.set("target", graph_.nodes[graph_.links[l].to].pci.bus_id);
        out.children.push_back(std::move(link));
      }
      add_children(out, n);
    }
    return out;
  }

  void add_children(Element& out, int n) const {
    for (const int child : children_[n]) {
      if (graph_.nodes[child].type == NodeType::gpu && graph_.nodes[child].gpu.on_cpu) continue;
      out.children.push_back(element(child));
    }
  }

  Element gpu(const Node& node) const {
    Element out;
    out.name = "gpu";
    out.set("dev", std::to_string(node.gpu.dev));
    out.set("sm", std::to_string(node.gpu.sm));
    set_known(out, "gcn", node.gpu.gcn);
    set_known(out, "arch", node.gpu.arch);
    if (node.gpu.rank >= 0) out.set("rank", std::to_string(node.gpu.rank));
    out.set("gdr", node.gpu.gdr ? "1" : "0");
    set_all(out, node.others);
    const bool amd = !node.gpu.gcn.empty();
    for (const int l : node.out) {
      const Link& link = graph_.links[l];
      const Node& to = graph_.nodes[link.to];
      Element edge;
      if (link.type == LinkType::c2c) {
        edge.name = "c2c";
        edge.set("bw", fmt::format("{:.0f}", link.bw * 1000));
        edge.set("count", "1");
      } else if (link.type == LinkType::nvl) {
        edge.name = amd ? "xgmi" : "nvlink";
        edge.set("target", to.type == NodeType::nvs   ? "fffffff:ff:ff.0"
                           : to.type == NodeType::cpu ? "ffffffff:ff:ff.0"
                                                      : to.pci.bus_id);
        edge.set("count", fmt::format("{:.0f}", link.bw / each_link(node)));
        edge.set("tclass", to.type == NodeType::nvs      ? "0x068000"
                           : to.type == NodeType::cpu    ? "0x068001"
                           : to.pci.device_class.empty() ? "0x030200"
                                                         : to.pci.device_class);
      } else {
        continue;
      }
      out.children.push_back(std::move(edge));
    }
    return out;
  }

  static float each_link(const Node& node) {
    return node.gpu.gcn.empty() ? nvlink_bw(node.gpu.sm) : xgmi_bw(node.gpu.gcn);
  }

  const Graph& graph_;
  std::vector<std::vector<int>> children_;
};

}  // namespace

Element to_xml(const Graph& graph) {
  return Writer(graph).system();
}

}  // namespace ccl::topo
