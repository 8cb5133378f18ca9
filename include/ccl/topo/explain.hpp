#pragma once

#include <ccl/topo/path.hpp>

#include <string>
#include <vector>

namespace ccl::topo {

/// Returns sentences that explain the path of data from `a` to `b`:
/// - the path and its narrowest link,
/// - the meaning of its type,
/// - the rule that changed the path as wired,
/// - the path without NVLink,
/// - the permission and the reason of P2P or GPU direct RDMA,
/// - the transport that follows.
std::vector<std::string> explain(const Graph& graph, const Paths& paths, const PathRules& rules,
                                 int a, int b);

}  // namespace ccl::topo
