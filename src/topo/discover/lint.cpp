#include <ccl/topo/lint.hpp>
#include <ccl/topo/path.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>

namespace ccl::topo {

namespace {

/// Bandwidth of a device's widest PCIe link, in GB/s.
float uplink(const Graph& graph, int device) {
  float bw = 0;
  for (const int l : graph.nodes[device].out) {
    if (graph.links[l].type == LinkType::pci) bw = std::max(bw, graph.links[l].bw);
  }
  return bw;
}
/// Bandwidth of all NVLinks of a GPU, in GB/s.
float nvlink(const Graph& graph, int gpu) {
  float bw = 0;
  for (const int l : graph.nodes[gpu].out) {
    if (graph.links[l].type == LinkType::nvl) bw += graph.links[l].bw;
  }
  return bw;
}

/// Compares a GPU's PCIe and NVLink bandwidths with those of the other GPUs.
void check_gpu_links(const Graph& graph, int gpu, float widest, std::vector<Finding>& findings) {
  const float bw = uplink(graph, gpu);
  // A speed that is not known is a finding of its own, and no fault of the card.
  const bool known = pcie_bw(graph.nodes[gpu].pci.link_speed, 16) > 0;
  if (known && bw > 0 && bw < widest) {
    findings.push_back(
        {fmt::format("{} has {:g} GB/s of PCIe, others have {:g}", graph.label(gpu), bw, widest),
         "reseat the card, check the slot's width and the BIOS's lane split"});
  }
  const float fabric = nvlink(graph, gpu);
  for (int other = 0; other < gpu; ++other) {
    if (graph.nodes[other].type != NodeType::gpu) continue;
    const float there = nvlink(graph, other);
    if (std::abs(fabric - there) > 0.1F) {
      findings.push_back({fmt::format("{} has {:g} GB/s of NVLink, {} has {:g}", graph.label(gpu),
                                      fabric, graph.label(other), there),
                          "look for inactive links with nvidia-smi nvlink --status"});
      break;
    }
  }
}

struct GpusWithoutGdr {
  bool too_far = false;  // true: GPU and NIC offer it
  std::vector<std::string> labels;
};
/// GPUs without GPU direct RDMA, by their NIC and the reason.
using WithoutGdr = std::map<std::pair<int, std::string>, GpusWithoutGdr>;

const char* gdr_advice(const Node::Net& net, const GpusWithoutGdr& gpus) {
  if (gpus.too_far) return "put both below one switch, or raise CCL_NET_GDR_LEVEL";
  return net.gdr ? "load nvidia-peermem or use a driver with DMA-BUF, and put both below one switch"
                 : "use a NIC with RDMA, and load nvidia-peermem or use a driver with DMA-BUF";
}

void check_gpu_net(const Graph& graph, const Paths& paths, const PathRules& rules, int gpu,
                   WithoutGdr& without_gdr, std::vector<Finding>& findings) {
  const int net = local_net(graph, paths, gpu, 0);
  if (net < 0) {
    findings.push_back({fmt::format("{} reaches no NIC", graph.label(gpu)),
                        "check the PCI part of the topology file"});
    return;
  }
  const PathType type = paths.at(gpu, net).type;
  if (type == PathType::sys) {
    findings.push_back({fmt::format("{} and its NIC {} are on different sockets", graph.label(gpu),
                                    graph.nodes[net].net.name),
                        "move the NIC, or add one on the GPU's socket"});
  }
  const GdrAnswer gdr = check_gdr(graph, paths, rules, gpu, net, false);
  if (gdr.allowed) return;
  GpusWithoutGdr& without = without_gdr[{net, gdr.why}];
  without.too_far = graph.nodes[gpu].gpu.gdr && graph.nodes[net].net.gdr;
  without.labels.push_back(graph.label(gpu));
}

void check_gpus(const Graph& graph, const PathRules& rules, std::vector<Finding>& findings) {
  const std::vector<int> gpus = graph.of(NodeType::gpu);
  float widest = 0;
  for (const int gpu : gpus) widest = std::max(widest, uplink(graph, gpu));
  const Paths paths = compute_paths(graph, rules);
  const bool has_nets = !graph.of(NodeType::net).empty();
  WithoutGdr without_gdr;
  for (const int gpu : gpus) {
    check_gpu_links(graph, gpu, widest, findings);
    if (has_nets && !graph.nodes[gpu].gpu.on_cpu) {
      check_gpu_net(graph, paths, rules, gpu, without_gdr, findings);
    }
  }
  for (const auto& [where, without] : without_gdr) {
    const Node::Net& net = graph.nodes[where.first].net;
    findings.push_back({fmt::format("no GPU direct RDMA between {} and {} ({})", net.name,
                                    fmt::join(without.labels, ", "), where.second),
                        gdr_advice(net, without)});
  }
}

/// Compares the bandwidth of a NIC's ports with that of its slot.
void check_nic(const Graph& graph, int nic, std::vector<Finding>& findings) {
  float wire = 0;
  std::string names;
  std::vector<int> nets;
  for (const int l : graph.nodes[nic].out) {
    const int net = graph.links[l].to;
    if (graph.nodes[net].type == NodeType::net && graph.nodes[net].parent == nic) {
      nets.push_back(net);
    }
  }
  std::sort(nets.begin(), nets.end());
  for (const int net : nets) {
    wire += graph.nodes[net].net.bw;
    names += (names.empty() ? "" : ", ") + graph.nodes[net].net.name;
  }
  const float bw = uplink(graph, nic);
  if (bw > 0 && bw < wire * 0.9F) {
    findings.push_back({fmt::format("{} has {:g} GB/s of wire, but {:g} of PCIe", names, wire, bw),
                        "move the NIC to a wider or faster slot"});
  }
}

void check_switch(const Graph& graph, int node, std::vector<Finding>& findings) {
  for (const int l : graph.nodes[node].out) {
    const Link& link = graph.links[l];
    if (link.to == graph.nodes[node].parent && link.bw < 4) {
      findings.push_back({fmt::format("switch {} has {:g} GB/s to {}", graph.label(node), link.bw,
                                      graph.label(link.to)),
                          "many bridges report 2.5 GT/s x1 falsely; set link_speed in a topology "
                          "file if so"});
    }
  }
}

}  // namespace

std::vector<Finding> lint(const LoadedGraph& machine, const PathRules& rules) {
  std::vector<Finding> findings;
  for (const Repair& repair : machine.repairs) {
    findings.push_back(
        {repair.line > 0 ? fmt::format("line {}: {}", repair.line, repair.what) : repair.what,
         repair.line > 0
             ? "correct the file"
             : "give the right value in a topology file (CCL_TOPO_FILE), if it matters"});
  }
  const Graph& graph = machine.graph;
  check_gpus(graph, rules, findings);
  for (const int nic : graph.of(NodeType::nic)) check_nic(graph, nic, findings);
  for (const int node : graph.of(NodeType::pci)) check_switch(graph, node, findings);
  return findings;
}

}  // namespace ccl::topo
