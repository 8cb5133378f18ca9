#pragma once

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace ccl::test {

/// NUMA node that the memory at an address is asked for on; -1: any.
inline int preferred_node(const void* at) {
  constexpr int nodes = 1024, bits = 64;
  int mode = -1;
  unsigned long mask[nodes / bits] = {};
  const auto asked = ::syscall(SYS_get_mempolicy, &mode, mask, nodes, at, MPOL_F_ADDR);
  if (asked != 0 || mode != MPOL_PREFERRED) return -1;
  for (int node = 0; node < nodes; ++node) {
    if ((mask[node / bits] >> node % bits & 1) != 0) return node;
  }
  return -1;
}

/// True if the system lets a process ask for memory of a node.
inline bool may_prefer_nodes() {
  int mode = -1;
  return ::syscall(SYS_get_mempolicy, &mode, nullptr, 0, nullptr, 0) == 0;
}

}  // namespace ccl::test
