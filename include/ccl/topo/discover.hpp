#pragma once

#include <ccl/types/result.hpp>
#include <ccl/topo/xml.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ccl::topo {

/// One end of NVLinks of a GPU.
struct DiscoveredLink {
  std::string remote_bus_id;  // empty or unknown: an NVSwitch
  int count = 0;
};

/// A GPU as its driver shows it.
struct DiscoveredGpu {
  std::string bus_id;  // "0000:17:00.0"
  int dev = 0;
  int sm = 0;
  std::vector<DiscoveredLink> links;
  int c2c_links = 0, c2c_mbps = 0;  // to the CPU's chip; MB/s of each
  bool mig = false;                 // split into instances, which have no NVLink
  /// The NVLink fabric of several hosts that it belongs to, "cluster:clique"; empty: it has none.
  std::string fabric{};
};

/// A port of an RDMA device that is up, as libibverbs shows it.
struct DiscoveredNic {
  std::string name;  // "mlx5_0"
  int port = 1;
  int mbps = 0;             // 0: the kernel knows better
  std::uint64_t guid = 0;   // of the card; 0: the kernel knows better
  int max_connections = 0;  // 0: unknown
  bool infiniband = true;   // else RoCE
  bool dma_buf = false;     // registers GPU memory that comes as a DMA-BUF
};
struct DiscoveredNics {
  std::vector<DiscoveredNic> nics;
  bool asked = true;  // false: there is no libibverbs, and the kernel's files must do
  std::string why;    // in words, where there are none
};
/// The ports that CCL_IB_HCA takes; libibverbs is opened at run time. An error only for settings
/// that do not fit.
[[nodiscard]] Result<DiscoveredNics> verbs_nics();

struct DiscoverOptions {
  std::string sys = "/sys";  // another root for tests
  std::string proc = "/proc";
  std::optional<std::vector<DiscoveredGpu>> gpus;         // unset: ask NVML
  std::optional<std::vector<DiscoveredNic>> nics;         // unset: ask libibverbs
  std::optional<std::vector<std::string>> sockets;  // interfaces; unset: as CCL_SOCKET_IFNAME says
  bool network = true;
};

/// What NVML knows; opened at run time. Empty where there is no driver; `why` then says what is
/// missing.
std::vector<DiscoveredGpu> nvml_gpus(std::string& why);
/// The one with that bus id; nothing where there is no driver or no such GPU.
std::optional<DiscoveredGpu> nvml_gpu(const std::string& bus_id);
/// `DiscoveredGpu::fabric` alone.
std::string nvml_fabric(const std::string& bus_id);

/// This machine: NUMA nodes and CPU model, PCI chains of GPUs and NICs, NVLinks, InfiniBand
/// devices, and network interfaces where there are none. Works without GPUs and without a network.
/// What could not be seen is in `repairs` of the graph made of it, or in a missing attribute.
[[nodiscard]] Result<XmlFile> discover(const DiscoverOptions& options = {});

}  // namespace ccl::topo
