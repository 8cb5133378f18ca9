#pragma once

#include <string>

namespace ccl::topo {

/// NIC of a machine: the device number of its NET, and its name as in `EdgeNics`.
struct HostNic {
  int device = 0;
  std::string name;
};

}  // namespace ccl::topo
