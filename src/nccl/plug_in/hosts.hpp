#pragma once

#include <ccl/comm/communicator.hpp>

#include <cstdint>
#include <set>

namespace ccl::detail::nccl {

/// Number of hosts on which the communicator has ranks.
inline int hosts_of(const Communicator& comm) {
  std::set<std::uint64_t> hosts;
  for (int r = 0; r < comm.ranks(); ++r) hosts.insert(comm.peer(r).host_hash);
  return int(hosts.size());
}

}  // namespace ccl::detail::nccl
