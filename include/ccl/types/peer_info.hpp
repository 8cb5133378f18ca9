#pragma once

#include <ccl/types/result.hpp>
#include <ccl/types/word.hpp>

#include <cuda/std/cstdint>

namespace ccl {

/// What every rank tells every other, first of all. Trivially copyable: it travels as bytes.
struct PeerInfo {
  int rank = -1;
  int device = -1;                     // CUDA device index; -1: the rank's data is in CPU memory
  cuda::std::uint64_t host_hash = 0;   // of CCL_HOSTID, else of boot id, name and network namespace
  cuda::std::uint64_t pid_hash = 0;    // of host_hash, pid and pid namespace: one address space
  cuda::std::uint64_t shm_device = 0;  // st_dev of /dev/shm; equal where memory can be shared
  cuda::std::int64_t bus_id = -1;      // PCI bus id of the device
  cuda::std::uint64_t fabric = 0;      // of its NVLink domain over several hosts; 0: it has none
  int compute_capability = 0;          // 90 for sm_90; 0 on CPU
  int multiprocessors = 0;             // of the device; 0 on CPU
  int max_blocks = 0;                 // of a launch there, by CCL_MAX_CTAS; 0: no bound, or on CPU
  int numa = -1;                       // NUMA node that it is bound to; -1: to none alone
  int looks_closely = 0;               // it has files that say or want to know the topology
  int pid = 0;
  int ib_kinds = 0;    // of its active RDMA ports: 1 InfiniBand, 2 RoCE
  int ib_absence = 0;  // why it has none; detail::IbAbsence
  char host[64] = {};  // host name, for messages

  /// What the topology says of the way between this rank and the one that holds this copy. Set by
  /// that one; both come to the same.
  struct LinkPreference {
    bool avoid_p2p = false;    // too far: through host memory is better
    bool prefer_rdma = false;  // both have NICs that are wider than what is between them
    int fault = 0;             // why they do not address each other's memory; detail::PathFault
    int relay = -1;            // rank whose GPU lies between them on NVLink, for their wires
    cuda::std::int64_t relay_bus_id = -1;  // of that GPU
  } way;
};

/// What this process says of itself as `rank` with `device`.
Result<PeerInfo> local_peer_info(int rank, int device);

}  // namespace ccl
