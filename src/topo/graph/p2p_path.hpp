#pragma once

#include <ccl/topo/graph.hpp>
#include <ccl/types/peer_info.hpp>
#include <ccl/types/result.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ccl::detail {

/// Farthest path over which GPUs may access each other, from CCL_P2P_LEVEL: a path type, or one of
/// NCCL's numbers 0 to 5. Empty if not set.
Result<std::optional<topo::PathType>> p2p_level();
/// Farthest path over which a NIC may access a GPU's memory, from CCL_NET_GDR_LEVEL, written in the
/// same way.
Result<std::optional<topo::PathType>> gdr_level();

/// True if one NVLink domain over several hosts joins the two GPUs.
inline bool same_fabric(const PeerInfo& a, const PeerInfo& b) {
  return a.fabric != 0 && a.fabric == b.fabric;
}
inline bool same_gpu(const PeerInfo& a, const PeerInfo& b) {
  return a.host_hash == b.host_hash && a.bus_id == b.bus_id && a.gpu == b.gpu;
}
/// True for two instances of one GPU (MIG). They have no path but the host's memory.
inline bool are_instances(const PeerInfo& a, const PeerInfo& b) {
  return a.host_hash == b.host_hash && a.bus_id == b.bus_id && a.gpu != b.gpu;
}

/// Path between two GPUs. On one host: LOC for one GPU; PHB for two instances of one; NVL if the
/// driver reports atomics on their link, which PCIe lacks; else by their places among the PCI
/// devices. For GPUs that this process does not see, NVL if that was noted. Between hosts: NVL in
/// one fabric, else DIS.
topo::PathType gpu_path(const PeerInfo& a, const PeerInfo& b);
/// Notes that NVLink joins the GPUs of this host with these bus ids, as the ranks there say. Does
/// nothing if this process sees both: the driver then knows.
void note_nvlink(std::int64_t a, std::int64_t b);

/// Path by the folders of two PCI devices ("0000:1b:00.0") under `sysfs` (/sys): PIX, PXB, PHB or
/// SYS; DIS if a device is missing.
topo::PathType pci_path(const std::string& sysfs, const std::string& a, const std::string& b);

std::string_view path_text(topo::PathType type);

/// True if the lines of LL128 land whole between two GPUs of a host: within one GPU and over
/// NVLink, on GPUs that are proven. A litmus test of 10^9 lines for each pair passed on sm_90.
/// Since sm_70, NCCL 2.28 relies on whole lines between equal GPUs, and from sm_90 on between any
/// (its `tuning.cc`).
bool lines_proven(const PeerInfo& a, const PeerInfo& b);

}  // namespace ccl::detail
