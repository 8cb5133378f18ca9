#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ccl::topo {

/// Type of a node. A `gpu` node is the position of a rank. On a machine without GPUs, CPU ranks
/// take its place (`Node::Gpu::on_cpu`).
enum class NodeType : int { gpu, pci, nvs, cpu, nic, net };

/// Type of a link. Values are those of NCCL: the best type of a path over the link.
enum class LinkType : int { loc = 0, nvl = 1, c2c = 3, pci = 4, sys = 9, net = 10 };

/// Type of a path between two nodes, best first. Values are those of NCCL.
enum class PathType : int {
  loc = 0,   ///< the node itself
  nvl = 1,   ///< NVLink, or NVLink through an NVSwitch
  nvb = 2,   ///< NVLink through exactly one other GPU
  c2c = 3,   ///< C2C: chip to chip
  pix = 4,   ///< at most one PCIe switch
  pxb = 5,   ///< several PCIe switches, no CPU
  p2c = 6,   ///< GPU to NIC: C2C to the CPU, then PCIe
  pxn = 7,   ///< GPU to NIC through another GPU
  phb = 8,   ///< through a CPU
  sys = 9,   ///< between CPUs
  net = 10,  ///< over the network only
  dis = 11   ///< no path
};

std::string_view name(NodeType type);
std::string_view name(LinkType type);
std::string_view name(PathType type);
/// Parses a path type in any case. Returns false if `text` names none.
bool parse(std::string_view text, PathType& type);

enum class CpuArch : int { x86, power, arm, other };
enum class CpuVendor : int { intel, amd, zhaoxin, other };

/// Bandwidths in GB/s in one direction. Source: measurements of NVIDIA in the constants of NCCL
/// 2.30, so that files and decisions compare with NCCL's.
namespace gbps {
constexpr float loc = 5000;        ///< within a device, or without a bottleneck
constexpr float nvlink_sm60 = 18;  ///< per link
constexpr float nvlink_sm70 = 20;  ///< per link; sm80 too
constexpr float nvlink_sm86 = 12;  ///< per link
constexpr float nvlink_sm90 = 20.6F;
constexpr float nvlink_sm100 = 40.1F;
constexpr float xgmi_vega = 24;     ///< AMD, per link; gfx906 and 908
constexpr float xgmi_mi200 = 36;    ///< gfx90a
constexpr float xgmi_mi300 = 48;    ///< gfx94x
constexpr float sys_broadwell = 6;  ///< between sockets
constexpr float sys_skylake = 10;
constexpr float sys_sapphire_rapids = 22;
constexpr float sys_emerald_rapids = 40;
constexpr float sys_amd = 16;
constexpr float sys_zhaoxin = 6;
constexpr float sys_yongfeng = 9;
constexpr float sys_power9 = 32;
constexpr float sys_arm = 6;
constexpr float sys_other = 6;     ///< unknown CPUs have the lowest known value
constexpr float host_memory = 20;  ///< one core that copies through memory of its NUMA node
}  // namespace gbps

/// One direction of a connection between two nodes.
struct Link {
  LinkType type;
  float bw;  ///< GB/s
  int from;  ///< node index
  int to;    ///< node index
};

/// Node of a machine. Only the member for its type is meaningful.
struct Node {
  NodeType type = NodeType::pci;
  std::int64_t id = 0;   ///< bus id as a number, NUMA id or NET device number
  int host = 0;          ///< index of the machine, if a graph has several
  int parent = -1;       ///< parent node in the PCI tree; -1 for CPUs and NVSwitches
  std::vector<int> out;  ///< indices of the links that leave the node, widest first
  /// Attributes that ccl does not use (keep, rail, plane, mlopart ...), and those of the node's PCI
  /// function. They are kept for writing.
  using Attributes = std::vector<std::pair<std::string, std::string>>;
  Attributes others, pci_others;
  /// Child elements of a NIC that are other names of its NETs (gin, rma). They are kept for
  /// writing.
  std::vector<std::pair<std::string, Attributes>> kept;

  struct Pci {
    std::string bus_id, device_class, vendor, device, subsystem_vendor, subsystem_device;
    std::string link_speed;  ///< as in sysfs: "16.0 GT/s PCIe"
    int link_width = 0;
  } pci;
  struct Gpu {
    int dev = -1;
    int rank = -1;
    int sm = 0;  ///< 90 for sm_90
    bool gdr = false;
    bool on_cpu = false;
    std::string gcn, arch;  ///< AMD's attributes, kept for writing
  } gpu;
  struct Cpu {
    CpuArch arch = CpuArch::other;
    CpuVendor vendor = CpuVendor::other;
    int family = 0, model = 0;
    std::string affinity, host_hash;     ///< as in the file
    std::string arch_name, vendor_name;  ///< as in the file
  } cpu;
  struct Net {
    std::string name;
    float bw = 0;  ///< GB/s
    int dev = 0;
    int port = 0;
    std::uint64_t guid = 0;  ///< NETs with the same guid and port share one cable
    float latency = 0;       ///< us
    int max_connections = 0;
    bool gdr = false;
    bool coll = false;  ///< supports in-network reduction
  } net;
};

/// Machine of nodes and directed links. Indices stay valid while no node is removed.
struct Graph {
  std::vector<Node> nodes;
  std::vector<Link> links;
  int version = 1;  ///< version of the file format; 2 is AMD's

  /// Adds a node and returns its index.
  int add(Node node) {
    nodes.push_back(std::move(node));
    return static_cast<int>(nodes.size()) - 1;
  }
  /// Adds `bw` GB/s to the link of this type, or creates it. Cost: the number of links of `from`.
  void connect(int from, int to, LinkType type, float bw);
  /// Returns the indices of all nodes of a type, in file order.
  std::vector<int> of(NodeType type) const;
  /// Returns the node of the GPU with this rank, or -1.
  int gpu_of_rank(int rank) const;
  /// Returns the lowest compute capability of all GPUs; 0 without GPUs.
  int min_sm() const;
  /// Returns a label such as "GPU/0-99000": type, host, id in hexadecimal.
  std::string label(int node) const;
};

/// Returns the GB/s of one NVLink of a GPU of compute capability `sm`.
float nvlink_bw(int sm);
/// Returns the GB/s of one xGMI link of an AMD GPU, named "gfx942" or by the older number.
float xgmi_bw(std::string_view gcn);
/// Returns the GB/s between two CPUs of this kind.
float sys_bw(const Node::Cpu& cpu);
/// Returns the GB/s of a PCIe link, or 0 for an unknown speed: "16.0 GT/s PCIe" with 16 lanes has
/// 24.
float pcie_bw(std::string_view speed, int width);

}  // namespace ccl::topo
