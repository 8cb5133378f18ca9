#pragma once

#include <vector>

namespace ccl::detail {

struct CommState;

/// Ranks of each host, ascending; hosts by lowest rank.
std::vector<std::vector<int>> ranks_by_host(const CommState& state);

/// How a communicator's ranks are spread over hosts.
struct HostShape {
  int hosts = 1;
  int most = 1;      // ranks of one host
  bool even = true;  // equally many on each
  // The n-th rank of host h is h * host_stride + n * local_stride, if `regular`: ranks are numbered
  // host by host, or around the hosts.
  bool regular = true;
  int host_stride = 0, local_stride = 0;
};
HostShape shape_of(const std::vector<std::vector<int>>& hosts);
HostShape host_shape(const CommState& state);

}  // namespace ccl::detail
