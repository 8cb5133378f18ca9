#pragma once

#include <ccl/types/position.hpp>

namespace ccl::test {

/// The seat of a double binary tree where each `of_host` ranks share a host.
constexpr TreeSeat tree_over_hosts(int rank, int ranks, int root, int which, int of_host) {
  TreeSeat seat = double_binary_tree(rank, ranks, root, which);
  seat.near = seat.far = 0;
  for (int at = rank, up = seat.up; up >= 0;) {
    ++(at / of_host == up / of_host ? seat.near : seat.far);
    at = up;
    up = double_binary_tree(at, ranks, root, which).up;
  }
  return seat;
}

}  // namespace ccl::test
