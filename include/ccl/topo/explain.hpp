#pragma once

#include <ccl/topo/path.hpp>

#include <string>
#include <vector>

namespace ccl::topo {

/// Why data goes from `a` to `b` the way it does, in sentences: the path and its narrowest link,
/// what its type means, which rule changed the way as wired, what the way would be without NVLink,
/// P2P or GPU direct RDMA or not, and the transport that follows.
std::vector<std::string> explain(const Graph& graph, const Paths& paths, const PathRules& rules,
                                 int a, int b);

}  // namespace ccl::topo
