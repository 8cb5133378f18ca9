#pragma once

#include <ccl/topo/graph.hpp>
#include <ccl/types/peer_info.hpp>
#include <ccl/types/result.hpp>

#include <optional>
#include <string>
#include <string_view>

namespace ccl::detail {

/// Farthest path over which GPUs may access each other, from CCL_P2P_LEVEL: a path type, or one of
/// NCCL's numbers 0 to 5. Empty if not set.
Result<std::optional<topo::PathType>> p2p_level();

/// True if one NVLink domain over several hosts joins the two GPUs.
inline bool same_fabric(const PeerInfo& a, const PeerInfo& b) {
  return a.fabric != 0 && a.fabric == b.fabric;
}
inline bool same_gpu(const PeerInfo& a, const PeerInfo& b) {
  return a.host_hash == b.host_hash && a.bus_id == b.bus_id;
}

/// Path between two GPUs. On one host: LOC for one GPU; NVL if the driver reports atomics on their
/// link, which PCIe lacks; else by their places among the PCI devices, as for a GPU that this
/// process may not use. Between hosts: NVL in one fabric, else DIS.
topo::PathType gpu_path(const PeerInfo& a, const PeerInfo& b);

/// Path by the folders of two PCI devices ("0000:1b:00.0") under `sysfs` (/sys): PIX, PXB, PHB or
/// SYS; DIS if a device is missing.
topo::PathType pci_path(const std::string& sysfs, const std::string& a, const std::string& b);

std::string_view path_text(topo::PathType type);

/// True if the lines of LL128 land whole. Holds for paths with a passed litmus test (10^9 lines for
/// each pair of GPUs): within one GPU, and over NVLink.
constexpr bool lines_proven(topo::PathType path) {
  return path <= topo::PathType::nvl;
}

}  // namespace ccl::detail
