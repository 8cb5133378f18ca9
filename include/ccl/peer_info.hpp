#pragma once

#include <ccl/result.hpp>
#include <ccl/types.hpp>

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
  int compute_capability = 0;          // 90 for sm_90; 0 on CPU
  int pid = 0;
  int ib_kinds = 0;    // of its active RDMA ports: 1 InfiniBand, 2 RoCE
  int ib_absence = 0;  // why it has none; detail::IbAbsence
  char host[64] = {};  // host name, for messages
};

/// What this process says of itself as `rank` with `device`.
Result<PeerInfo> local_peer_info(int rank, int device);

}  // namespace ccl
