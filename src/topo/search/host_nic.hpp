#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ccl::topo {

/// NIC of a machine: the device number of its NET, and its name as in `EdgeNics`.
struct HostNic {
  int device = 0;
  std::string name;
  // Why it may not read a rank's GPU memory to send, or write there; empty: it may.
  std::string no_read, no_write;
  // Bus id of the GPU next to it, over whose memory the rank sends by it (PXN); -1: none.
  std::int64_t relay = -1;
  bool relays_messages = false;   // true: messages between two ranks, too (CCL_P2P_PXN_LEVEL)
  int distance = 0;               // from the rank's GPU, as in `EdgeNics`
  std::vector<int> from_relay{};  // distances of all NICs from the GPU next to it, if that relays
};

}  // namespace ccl::topo
