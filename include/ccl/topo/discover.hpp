#pragma once

#include <ccl/result.hpp>
#include <ccl/topo/xml.hpp>

#include <optional>
#include <string>
#include <vector>

namespace ccl::topo {

/// One end of NVLinks of a GPU.
struct SeenLink {
  std::string remote_bus_id;  // empty or unknown: an NVSwitch
  int count = 0;
};

/// A GPU as its driver shows it.
struct SeenGpu {
  std::string bus_id;  // "0000:17:00.0"
  int dev = 0;
  int sm = 0;
  std::vector<SeenLink> links;
  int c2c_links = 0, c2c_mbps = 0;  // to the CPU's chip; MB/s of each
  bool mig = false;                 // split into instances, which have no NVLink
};

struct DiscoverOptions {
  std::string sys = "/sys";  // another root for tests
  std::string proc = "/proc";
  std::optional<std::vector<SeenGpu>> gpus;  // unset: ask NVML
  bool network = true;
};

/// What NVML knows; opened at run time. Empty where there is no driver; `why` then says what is
/// missing.
std::vector<SeenGpu> nvml_gpus(std::string& why);
/// The one with that bus id; nothing where there is no driver or no such GPU.
std::optional<SeenGpu> nvml_gpu(const std::string& bus_id);

/// This machine: NUMA nodes and CPU model, PCI chains of GPUs and NICs, NVLinks, InfiniBand
/// devices, and network interfaces where there are none. Works without GPUs and without a network.
/// What could not be seen is in `repairs` of the graph made of it, or in a missing attribute.
[[nodiscard]] Result<XmlFile> discover(const DiscoverOptions& options = {});

/// A remark of `lint`: what is wrong, and what to do.
struct Remark {
  std::string problem, advice;
};
/// What slows this machine down: narrow PCIe links, asymmetric NVLinks, NICs on other sockets than
/// GPUs, missing GDR. With `here`, also what only the running system tells: IOMMU, ACS, file
/// descriptors, locked memory.
std::vector<Remark> lint(const LoadedGraph& machine, bool here);

}  // namespace ccl::topo
