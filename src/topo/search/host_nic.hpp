#pragma once

#include <string>

namespace ccl::topo {

/// NIC of a machine: the device number of its NET, and its name as in `EdgeNics`.
struct HostNic {
  int device = 0;
  std::string name;
  // Why it may not read a rank's GPU memory to send, or write there; empty: it may.
  std::string no_read, no_write;
};

}  // namespace ccl::topo
