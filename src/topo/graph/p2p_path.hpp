#pragma once

#include <ccl/types/peer_info.hpp>
#include <ccl/types/result.hpp>
#include <ccl/topo/graph.hpp>

#include <optional>
#include <string>
#include <string_view>

namespace ccl::detail {

/// The farthest path over which GPUs may access each other, by CCL_P2P_LEVEL: a path type, or one
/// of NCCL's numbers 0 to 5; none if it is not set.
Result<std::optional<topo::PathType>> p2p_level();

/// One NVLink domain over several hosts joins their GPUs.
inline bool same_fabric(const PeerInfo& a, const PeerInfo& b) {
  return a.fabric != 0 && a.fabric == b.fabric;
}
inline bool same_gpu(const PeerInfo& a, const PeerInfo& b) {
  return a.host_hash == b.host_hash && a.bus_id == b.bus_id;
}

/// How two GPUs of this host reach each other: LOC, NVL where the driver says that their link has
/// atomics, which PCIe has not, else what their places among the PCI devices say. A GPU that this
/// process may not use has its place only. Of different hosts: NVL in one fabric, else DIS.
topo::PathType gpu_path(const PeerInfo& a, const PeerInfo& b);

/// By the folders of two PCI devices ("0000:1b:00.0") under `sysfs` (/sys): PIX, PXB, PHB, SYS; DIS
/// if one is not there.
topo::PathType pci_path(const std::string& sysfs, const std::string& a, const std::string& b);

std::string_view path_text(topo::PathType type);

/// Do the lines of LL128 land whole there? Only over paths that the litmus test has run on (10^9
/// lines for each pair of GPUs): within one GPU, and over NVLink.
constexpr bool lines_proven(topo::PathType path) {
  return path <= topo::PathType::nvl;
}

}  // namespace ccl::detail
