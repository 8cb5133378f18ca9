#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ccl::topo {

/// What stands in a machine. A `gpu` node is the seat of a rank: on a machine without GPUs, ranks
/// on CPUs take its place (`Node::Gpu::on_cpu`).
enum class NodeType : int { gpu, pci, nvs, cpu, nic, net };

/// What a link is made of. Values are NCCL's, and a link's value is the best type of a path over
/// it.
enum class LinkType : int { loc = 0, nvl = 1, c2c = 3, pci = 4, sys = 9, net = 10 };

/// How two nodes reach each other, best first. Values are NCCL's.
enum class PathType : int {
  loc = 0,   // itself
  nvl = 1,   // NVLink, also through an NVSwitch
  nvb = 2,   // NVLink through exactly one other GPU
  c2c = 3,   // chip to chip
  pix = 4,   // at most one PCIe switch
  pxb = 5,   // several PCIe switches, no CPU
  p2c = 6,   // GPU to NIC: C2C to the CPU, then PCIe
  pxn = 7,   // GPU to NIC through another GPU
  phb = 8,   // through a CPU
  sys = 9,   // between CPUs
  net = 10,  // only over the network
  dis = 11   // not at all
};

std::string_view name(NodeType type);
std::string_view name(LinkType type);
std::string_view name(PathType type);
/// False if `text` names no path type; case matters not.
bool parse(std::string_view text, PathType& type);

enum class CpuArch : int { x86, power, arm, other };
enum class CpuVendor : int { intel, amd, zhaoxin, other };

/// Bandwidths in GB/s, one direction. Source of all: facts measured by NVIDIA and stated in NCCL
/// 2.30's constants, so that files and decisions compare with NCCL's.
namespace gbps {
constexpr float loc = 5000;        // within a device; also: not a bottleneck
constexpr float nvlink_sm60 = 18;  // per link
constexpr float nvlink_sm70 = 20;  // per link; sm80 too
constexpr float nvlink_sm86 = 12;  // per link
constexpr float nvlink_sm90 = 20.6F;
constexpr float nvlink_sm100 = 40.1F;
constexpr float xgmi_vega = 24;     // AMD, per link; gfx906 and 908
constexpr float xgmi_mi200 = 36;    // gfx90a
constexpr float xgmi_mi300 = 48;    // gfx94x
constexpr float sys_broadwell = 6;  // between sockets
constexpr float sys_skylake = 10;
constexpr float sys_sapphire_rapids = 22;
constexpr float sys_emerald_rapids = 40;
constexpr float sys_amd = 16;
constexpr float sys_zhaoxin = 6;
constexpr float sys_yongfeng = 9;
constexpr float sys_power9 = 32;
constexpr float sys_arm = 6;
constexpr float sys_other = 6;     // unknown CPUs get the slowest known figure
constexpr float host_memory = 20;  // a core copying through its NUMA node's memory
}  // namespace gbps

/// One direction of a connection between two nodes.
struct Link {
  LinkType type;
  float bw;  // GB/s
  int from;  // node index
  int to;    // node index
};

/// A thing in a machine. Only the part of its type is meaningful.
struct Node {
  NodeType type = NodeType::pci;
  std::int64_t id = 0;   // bus id as a number; NUMA id; NET device number
  int host = 0;          // of which machine, where a graph spans several
  int parent = -1;       // node above in the PCI tree; -1 for CPUs and NVSwitches
  std::vector<int> out;  // indices of links that leave it, widest first
  /// Attributes of its file that ccl makes no use of (keep, rail, plane, mlopart ...), and those of
  /// the PCI function it is: what is written has them again.
  using Attributes = std::vector<std::pair<std::string, std::string>>;
  Attributes others, pci_others;
  /// Elements of its file below a NIC that are other names of its NETs (gin, rma): likewise.
  std::vector<std::pair<std::string, Attributes>> kept;

  struct Pci {
    std::string bus_id, device_class, vendor, device, subsystem_vendor, subsystem_device;
    std::string link_speed;  // as sysfs words it: "16.0 GT/s PCIe"
    int link_width = 0;
  } pci;
  struct Gpu {
    int dev = -1;
    int rank = -1;
    int sm = 0;  // 90 for sm_90
    bool gdr = false;
    bool on_cpu = false;
    std::string gcn, arch;  // AMD's dialect, kept for writing
  } gpu;
  struct Cpu {
    CpuArch arch = CpuArch::other;
    CpuVendor vendor = CpuVendor::other;
    int family = 0, model = 0;
    std::string affinity, host_hash;     // as in the file
    std::string arch_name, vendor_name;  // as in the file
  } cpu;
  struct Net {
    std::string name;
    float bw = 0;  // GB/s
    int dev = 0;
    int port = 0;
    std::uint64_t guid = 0;  // NETs of one guid and port share one wire
    float latency = 0;       // us
    int max_connections = 0;
    bool gdr = false;
    bool coll = false;  // offers in-network reduction
  } net;
};

/// A machine: nodes and directed links. Plain data; indices stay valid as long as nothing is
/// removed.
struct Graph {
  std::vector<Node> nodes;
  std::vector<Link> links;
  int version = 1;  // dialect of the file: 2 is AMD's

  int add(Node node) {
    nodes.push_back(std::move(node));
    return static_cast<int>(nodes.size()) - 1;
  }
  /// Adds `bw` to the link of this type, or makes it. Cost: the number of links of `from`.
  void connect(int from, int to, LinkType type, float bw);
  /// Indices of all nodes of a type, in the order of the file.
  std::vector<int> of(NodeType type) const;
  /// Node of the GPU with that rank, or -1.
  int gpu_of_rank(int rank) const;
  /// Lowest compute capability of all GPUs; 0 without GPUs.
  int min_sm() const;
  /// "GPU/0-99000": type, host, id in hexadecimal.
  std::string label(int node) const;
};

/// Bandwidth of one NVLink of a GPU of compute capability `sm`.
float nvlink_bw(int sm);
/// Bandwidth of one xGMI link of an AMD GPU: "gfx942", or the older number.
float xgmi_bw(std::string_view gcn);
/// Bandwidth between two CPUs of this kind.
float sys_bw(const Node::Cpu& cpu);
/// GB/s of a PCIe link: "16.0 GT/s PCIe", 16 lanes -> 24. Returns 0 for an unknown speed.
float pcie_bw(std::string_view speed, int width);

}  // namespace ccl::topo
