#include <ccl/topo/lint.hpp>
#include <ccl/topo/path.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>

namespace ccl::topo {

std::vector<Finding> lint(const LoadedGraph& machine) {
  std::vector<Finding> findings;
  const Graph& graph = machine.graph;
  for (const Repair& repair : machine.repairs) {
    findings.push_back(
        {repair.line > 0 ? fmt::format("line {}: {}", repair.line, repair.what) : repair.what,
         repair.line > 0
             ? "correct the file"
             : "give the right value in a topology file (CCL_TOPO_FILE), if it matters"});
  }
  const std::vector<int> gpus = graph.of(NodeType::gpu);
  float widest = 0;
  const auto uplink = [&](int device) {
    float bw = 0;
    for (const int l : graph.nodes[device].out) {
      if (graph.links[l].type == LinkType::pci) bw = std::max(bw, graph.links[l].bw);
    }
    return bw;
  };
  for (const int gpu : gpus) widest = std::max(widest, uplink(gpu));
  const Paths paths = compute_paths(graph);
  const std::vector<int> nets = graph.of(NodeType::net);
  std::map<std::pair<int, std::string>, std::vector<std::string>> without_gdr;
  for (const int gpu : gpus) {
    const float bw = uplink(gpu);
    if (bw > 0 && bw < widest) {
      findings.push_back(
          {fmt::format("{} has {:g} GB/s of PCIe, others have {:g}", graph.label(gpu), bw, widest),
           "reseat the card, check the slot's width and the BIOS's lane split"});
    }
    float fabric = 0;
    for (const int l : graph.nodes[gpu].out) {
      if (graph.links[l].type == LinkType::nvl) fabric += graph.links[l].bw;
    }
    for (const int other : gpus) {
      float there = 0;
      for (const int l : graph.nodes[other].out) {
        if (graph.links[l].type == LinkType::nvl) there += graph.links[l].bw;
      }
      if (other < gpu && std::abs(fabric - there) > 0.1F) {
        findings.push_back({fmt::format("{} has {:g} GB/s of NVLink, {} has {:g}", graph.label(gpu),
                                       fabric, graph.label(other), there),
                           "look for inactive links with nvidia-smi nvlink --status"});
        break;
      }
    }
    if (nets.empty() || graph.nodes[gpu].gpu.on_cpu) continue;
    const int net = local_net(graph, paths, gpu, 0);
    if (net < 0) {
      findings.push_back({fmt::format("{} reaches no NIC", graph.label(gpu)),
                         "check the PCI part of the topology file"});
      continue;
    }
    const PathType type = paths.at(gpu, net).type;
    if (type == PathType::sys) {
      findings.push_back({fmt::format("{} and its NIC {} are on different sockets", graph.label(gpu),
                                     graph.nodes[net].net.name),
                         "move the NIC, or add one on the GPU's socket"});
    }
    const GdrAnswer gdr = check_gdr(graph, paths, {}, gpu, net, false);
    if (!gdr.allowed) without_gdr[{net, gdr.why}].push_back(graph.label(gpu));
  }
  for (const auto& [where, labels] : without_gdr) {
    const Node::Net& net = graph.nodes[where.first].net;
    findings.push_back({fmt::format("no GPU direct RDMA between {} and {} ({})", net.name,
                                   fmt::join(labels, ", "), where.second),
                       net.gdr ? "load nvidia-peermem or use a driver with DMA-BUF, and put both "
                                 "below one switch"
                               : "use a NIC with RDMA, and load nvidia-peermem or use a driver "
                                 "with DMA-BUF"});
  }
  for (const int nic : graph.of(NodeType::nic)) {
    float wire = 0;
    std::string names;
    for (const int net : nets) {
      if (graph.nodes[net].parent != nic) continue;
      wire += graph.nodes[net].net.bw;
      names += (names.empty() ? "" : ", ") + graph.nodes[net].net.name;
    }
    const float bw = uplink(nic);
    if (bw > 0 && bw < wire * 0.9F) {
      findings.push_back({fmt::format("{} has {:g} GB/s of wire, but {:g} of PCIe", names, wire, bw),
                         "move the NIC to a wider or faster slot"});
    }
  }
  for (const int node : graph.of(NodeType::pci)) {
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
  return findings;
}

}  // namespace ccl::topo
