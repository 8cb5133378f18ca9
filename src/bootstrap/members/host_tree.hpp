#pragma once

#include <ccl/detail/runtime/bootstrap.hpp>

#include <vector>

namespace ccl::detail {

/// Place of a rank in a tree over all ranks: a tree inside each host, and one between the first
/// ranks of the hosts. All ranks make the same tree.
struct HostTree {
  static constexpr int fan_out = 8;  // children of a rank in each of the two trees

  HostTree(const std::vector<RankPlace>& places, int rank);

  int parent = -1;  // -1: this rank is the root
  int height = 0;   // steps down to the farthest rank below this one
  int levels = 0;   // `height` of the root
  /// Ranks below each child: the child, and then those below each of its children.
  std::vector<std::vector<int>> below;
};

}  // namespace ccl::detail
