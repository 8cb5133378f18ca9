#pragma once

#include <ccl/types/result.hpp>
#include <ccl/types/word.hpp>

#include <cuda/std/cstdint>

namespace ccl {

/// Description of a rank, exchanged once at creation. Trivially copyable and without padding,
/// because it is sent as bytes.
struct PeerInfo {
  int rank = -1;
  int device = -1;  ///< CUDA device index; -1: the rank's data is in CPU memory
  /// Hash of CCL_HOSTID, or else of boot id, host name and network namespace.
  cuda::std::uint64_t host_hash = 0;
  /// Hash of host_hash, pid and pid namespace; equal within one address space.
  cuda::std::uint64_t pid_hash = 0;
  /// Hash of boot id and network namespace. Processes with the same value can give each other
  /// memory, whatever CCL_HOSTID says.
  cuda::std::uint64_t memory_domain = 0;
  cuda::std::int64_t bus_id = -1;  ///< PCI bus id of the device; -1 on CPU
  /// Hash of the device's UUID. Instances of one GPU (MIG) have the same bus id and different
  /// UUIDs. 0 on CPU.
  cuda::std::uint64_t gpu = 0;
  /// Hash of the device's NVLink domain over several hosts; 0: none.
  cuda::std::uint64_t fabric = 0;
  int compute_capability = 0;  ///< 90 for sm_90; 0 on CPU
  int multiprocessors = 0;     ///< multiprocessors of the device; 0 on CPU
  int max_blocks = 0;     ///< blocks of a launch, at most (CCL_MAX_CTAS); 0: no bound, or on CPU
  int numa = -1;          ///< NUMA node that the rank is bound to; -1: not bound to a single node
  int looks_closely = 0;  ///< 1 if a setting of the rank reads or writes topology files
  int pid = 0;
  int ib_kinds = 0;    ///< kinds of its active RDMA ports, as bits: 1 InfiniBand, 2 RoCE
  int ib_absence = 0;  ///< reason why it has no RDMA port; a detail::IbAbsence
  /// Hash of the name of the rank's network plug-in; 0: it has none.
  cuda::std::uint64_t net_plug_in = 0;
  int net_plug_in_only = 0;  ///< 1: by its settings the plug-in is its only network
  int net_absence = 0;       ///< reason why it has no plug-in; a detail::NetPlugInAbsence
  char host[64] = {};        ///< host name, for messages

  /// Topology result for the path between this rank and the rank that holds the copy. The holder
  /// sets it. Both ends compute the same result.
  struct LinkPreference {
    int avoid_p2p = 0;  ///< 1: the path is long, so host memory is faster
    /// 1: both ranks have NICs with more bandwidth than the path between them.
    int prefer_rdma = 0;
    int fault = 0;   ///< reason why they cannot address each other's memory; a detail::PathFault
    int relay = -1;  ///< rank whose GPU relays their wires over NVLink; -1: none
    cuda::std::int64_t relay_bus_id = -1;  ///< PCI bus id of that GPU; -1: none
  } way;
};

/// Returns the description of this process as `rank` with CUDA device `device` (-1: CPU).
[[nodiscard]] Result<PeerInfo> local_peer_info(int rank, int device);

}  // namespace ccl
