#pragma once

#include <ccl/topo/xml.hpp>
#include <ccl/types/result.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ccl::topo {

/// NVLinks of a GPU to one remote end.
struct DiscoveredLink {
  std::string remote_bus_id;  ///< empty or unknown: an NVSwitch
  int count = 0;
};

/// GPU as reported by its driver.
struct DiscoveredGpu {
  std::string bus_id;  ///< "0000:17:00.0"
  int dev = 0;
  int sm = 0;
  std::vector<DiscoveredLink> links;
  int c2c_links = 0, c2c_mbps = 0;  ///< C2C links to the CPU's chip; MB/s of each
  bool mig = false;                 ///< true: split into instances, which have no NVLink
  /// NVLink fabric over several hosts, as "cluster:clique"; empty: none.
  std::string fabric{};
};

/// Active port of an RDMA device, as reported by libibverbs.
struct DiscoveredNic {
  std::string name;  ///< "mlx5_0"
  int port = 1;
  int mbps = 0;             ///< MB/s; 0: taken from the kernel's files
  std::uint64_t guid = 0;   ///< GUID of the card; 0: taken from the kernel's files
  int max_connections = 0;  ///< 0: unknown
  bool infiniband = true;   ///< true: InfiniBand; false: RoCE
  bool dma_buf = false;     ///< true: registers GPU memory from a DMA-BUF
};
/// RDMA ports of this machine, and the reason if there are none.
struct DiscoveredNics {
  std::vector<DiscoveredNic> nics;
  bool asked = true;  ///< false: there is no libibverbs, and the kernel's files replace it
  std::string why;    ///< reason, if there are no NICs
};
/// Returns the ports that CCL_IB_HCA accepts. Opens libibverbs at run time. Fails only with
/// `Errc::bad_setting`.
[[nodiscard]] Result<DiscoveredNics> verbs_nics();

/// Sources of `discover`.
struct DiscoverOptions {
  std::string sys = "/sys";  ///< root of sysfs; tests set another
  std::string proc = "/proc";
  std::optional<std::vector<DiscoveredGpu>> gpus;  ///< unset: queried from NVML
  std::optional<std::vector<DiscoveredNic>> nics;  ///< unset: queried from libibverbs
  /// Interfaces; unset: selected by CCL_SOCKET_IFNAME.
  std::optional<std::vector<std::string>> sockets;
  bool network = true;
};

/// Returns the GPUs that NVML reports. Opens NVML at run time. Returns an empty list without a
/// driver; `why` then holds the reason.
std::vector<DiscoveredGpu> nvml_gpus(std::string& why);
/// Returns the GPU with this bus id, or nothing without a driver or such a GPU.
std::optional<DiscoveredGpu> nvml_gpu(const std::string& bus_id);
/// Returns only the `fabric` of the GPU with this bus id; empty if it has none.
std::string nvml_fabric(const std::string& bus_id);

/// Returns a description of this machine: NUMA nodes, CPU models, PCI trees of GPUs and NICs,
/// NVLinks and InfiniBand devices. Network interfaces replace InfiniBand devices if there are none.
/// It works without GPUs and without a network. Unknown values are missing attributes, or are in
/// `repairs` of the graph.
[[nodiscard]] Result<XmlFile> discover(const DiscoverOptions& options = {});

}  // namespace ccl::topo
