#pragma once

#include <ccl/types/position.hpp>

namespace ccl::test {

/// Returns the position in a double binary tree where each `of_host` ranks share a host.
constexpr TreePosition tree_over_hosts(int rank, int ranks, int root, int which, int of_host) {
  TreePosition position = double_binary_tree(rank, ranks, root, which);
  position.near = position.far = 0;
  for (int at = rank, up = position.up; up >= 0;) {
    ++(at / of_host == up / of_host ? position.near : position.far);
    at = up;
    up = double_binary_tree(at, ranks, root, which).up;
  }
  return position;
}

}  // namespace ccl::test
