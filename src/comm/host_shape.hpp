#pragma once

#include <vector>

namespace ccl::detail {

struct CommState;

/// Returns the ranks of each host in ascending order. Hosts are ordered by their lowest rank.
std::vector<std::vector<int>> ranks_by_host(const CommState& state);

/// Distribution of the ranks of a communicator over hosts.
struct HostShape {
  int hosts = 1;
  int most = 1;      // largest number of ranks on one host
  bool even = true;  // all hosts have the same number of ranks
  // True if ranks are numbered host by host, or round robin over the hosts. The n-th rank of host h
  // is then h * host_stride + n * local_stride.
  bool regular = true;
  int host_stride = 0, local_stride = 0;
};
HostShape shape_of(const std::vector<std::vector<int>>& hosts);
HostShape host_shape(const CommState& state);

}  // namespace ccl::detail
