#pragma once

#include <ccl/algo/cost.hpp>

namespace ccl::detail {

class Identity;

/// Returns the links of the slowest machine, and the generation of the oldest GPU.
HostFacts host_facts(const Identity& identity);
/// Returns the network that the topology found. `rdma`: all edges between hosts are RDMA.
NetworkFacts network_facts(const Identity& identity, bool rdma);

}  // namespace ccl::detail
