#pragma once

// What tests of a machine room share. Include "support/played/played_gpus.hpp" first.
#include <ccl/transport/any_of.hpp>
#include <ccl/transport/ib.hpp>
#include <ccl/transport/p2p.hpp>

#include <fmt/format.h>

#include <iostream>
#include <vector>

#include "support/graph_of.hpp"
#include "support/room/room.hpp"

namespace ccl::test::room {

/// NVLink inside a host, RDMA between hosts.
using Ways = AnyOf<P2pTransport, IbTransport>;

/// Plan of a call that moves few KiB.
constexpr Plan small(int channels) {
  return {.channels = channels, .slot_count = 4, .slot_bytes = 8 << 10};
}

/// What `calls` move, printed for host 0.
template <class F>
std::vector<Traffic> moved_by(Room& hosts, const char* what, F calls) {
  const auto moved = hosts.traffic_of(calls);
  std::cout << hosts.shape().name << ", " << hosts.hosts() << " hosts, " << what
            << ", KiB sent/received by the NICs of host 0: " << text(moved, hosts.shape().nics)
            << "\n";
  return moved;
}

inline topo::Graph graph_of_host(const Shape& shape) {
  return graph_of(topology(shape, 0, shape.gpus,
                           [](int gpu) { return fmt::format("0000:{:02x}:00.0", 0x10 + gpu); }));
}

}  // namespace ccl::test::room
