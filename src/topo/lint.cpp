#include <ccl/topo/discover.hpp>
#include <ccl/topo/path.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "topo/sys_files.hpp"
#include <sys/resource.h>

namespace ccl::topo {
using detail::entries;
using detail::line_of;
namespace fs = std::filesystem;
namespace {

void lint_graph(const LoadedGraph& machine, std::vector<Remark>& remarks) {
  const Graph& graph = machine.graph;
  for (const Repair& repair : machine.repairs) {
    remarks.push_back(
        {repair.line > 0 ? fmt::format("line {}: {}", repair.line, repair.what) : repair.what,
         "correct the file, or give one with CCL_TOPO_FILE"});
  }
  const std::vector<int> gpus = graph.of(NodeType::gpu);
  float widest = 0;
  const auto uplink = [&](int gpu) {
    float bw = 0;
    for (const int l : graph.nodes[gpu].out) {
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
      remarks.push_back(
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
        remarks.push_back({fmt::format("{} has {:g} GB/s of NVLink, {} has {:g}", graph.label(gpu),
                                       fabric, graph.label(other), there),
                           "look for inactive links with nvidia-smi nvlink --status"});
        break;
      }
    }
    if (nets.empty() || graph.nodes[gpu].gpu.on_cpu) continue;
    const int net = local_net(graph, paths, gpu, 0);
    if (net < 0) {
      remarks.push_back({fmt::format("{} reaches no NIC", graph.label(gpu)),
                         "check the PCI part of the topology file"});
      continue;
    }
    const PathType type = paths.at(gpu, net).type;
    if (type == PathType::sys) {
      remarks.push_back({fmt::format("{} and its NIC {} are on different sockets", graph.label(gpu),
                                     graph.nodes[net].net.name),
                         "move the NIC, or add one on the GPU's socket"});
    }
    const GdrAnswer gdr = check_gdr(graph, paths, {}, gpu, net, false);
    if (!gdr.allowed) without_gdr[{net, gdr.why}].push_back(graph.label(gpu));
  }
  for (const auto& [where, labels] : without_gdr) {
    const Node::Net& net = graph.nodes[where.first].net;
    remarks.push_back({fmt::format("no GPU direct RDMA between {} and {} ({})", net.name,
                                   fmt::join(labels, ", "), where.second),
                       net.gdr ? "load nvidia-peermem or use a driver with DMA-BUF, and put both "
                                 "below one switch"
                               : "use a NIC with RDMA, and load nvidia-peermem or use a driver "
                                 "with DMA-BUF"});
  }
  for (const int node : graph.of(NodeType::pci)) {
    for (const int l : graph.nodes[node].out) {
      const Link& link = graph.links[l];
      if (link.to == graph.nodes[node].parent && link.bw < 4) {
        remarks.push_back({fmt::format("switch {} has {:g} GB/s to {}", graph.label(node), link.bw,
                                       graph.label(link.to)),
                           "many bridges report 2.5 GT/s x1 falsely; set link_speed in a topology "
                           "file if so"});
      }
    }
  }
}

void lint_system(std::vector<Remark>& remarks) {
  std::string why;
  const std::vector<SeenGpu> gpus = nvml_gpus(why);
  for (const SeenGpu& gpu : gpus) {
    if (!gpu.mig) continue;
    remarks.push_back({fmt::format("GPU {} is in MIG mode (its instances have no NVLink and no "
                                   "peer access)",
                                   gpu.bus_id),
                       "nvidia-smi -mig 0, if ranks of one job are to share it over NVLink"});
  }
  if (gpus.empty() && !entries("/proc/driver/nvidia/gpus").empty()) {
    remarks.push_back({fmt::format("there are GPUs, but NVML does not tell of them ({})", why),
                       "give the container the driver's utility libraries "
                       "(NVIDIA_DRIVER_CAPABILITIES=compute,utility)"});
  }
  const auto check_limit = [&](int resource, rlim_t wanted, const char* what, const char* flag) {
    rlimit limit{};
    if (getrlimit(static_cast<__rlimit_resource>(resource), &limit) == 0 &&
        limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < wanted) {
      remarks.push_back({fmt::format("{} is limited to {}", what, limit.rlim_cur),
                         fmt::format("raise it: ulimit {}", flag)});
    }
  };
  check_limit(RLIMIT_NOFILE, 4096, "the number of open files", "-n 65536");
  check_limit(RLIMIT_MEMLOCK, rlim_t{1} << 30, "locked memory", "-l unlimited");
  std::error_code ignored;
  const std::string command = line_of("/proc/cmdline");
  const bool pass_through = command.find("iommu=pt") != std::string::npos;
  if (!entries("/sys/class/iommu").empty() && !pass_through) {
    remarks.push_back({"the IOMMU is on and translates (PCIe P2P goes through the CPU)",
                       "boot with iommu=pt, or switch it off in the BIOS"});
  }
  for (const fs::path& device : entries("/sys/bus/pci/devices")) {
    if (line_of(device / "class").rfind("0x0604", 0) != 0) continue;
    std::ifstream in(device / "config", std::ios::binary);
    std::string config((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    const auto word = [&](std::size_t at) {
      unsigned value = 0;
      if (at + 4 <= config.size()) std::memcpy(&value, config.data() + at, 4);
      return value;
    };
    // Extended capabilities start at 0x100; ACS is number 0xd, its control at +6.
    for (std::size_t at = 0x100, hops = 0; at >= 0x100 && at + 8 <= config.size() && hops < 48;
         ++hops) {
      const unsigned header = word(at);
      if (header == 0 || header == ~0U) break;
      if ((header & 0xffffU) == 0xdU && ((word(at + 4) >> 16) & 0x1dU) != 0) {
        remarks.push_back(
            {fmt::format("ACS redirects on bridge {} (P2P below it goes up to the CPU)",
                         device.filename().string()),
             fmt::format("setpci -s {} ECAP_ACS+0x6.w=0000, or switch ACS off in the BIOS",
                         device.filename().string())});
      }
      at = header >> 20;
    }
  }
}

}  // namespace

std::vector<Remark> lint(const LoadedGraph& machine, bool here) {
  std::vector<Remark> remarks;
  lint_graph(machine, remarks);
  if (here) lint_system(remarks);
  return remarks;
}

}  // namespace ccl::topo
