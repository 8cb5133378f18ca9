#pragma once

#include <ccl/detail/choose/chooser.hpp>
#include <ccl/detail/runtime/transport_table.hpp>

#include <string>

#include "comm/host_shape.hpp"
#include "comm/state.hpp"

namespace ccl::detail {

/// Properties of one rank's edges over one transport.
struct Edges {
  const TransportTable* by = nullptr;
  Path path = Path::shm;
  Path inner_path = Path::shm;  // inside the host
  int line_bytes = 128;         // that land at once on all of them
  bool rdma = true;             // all edges over a network are RDMA
  std::string refusal;          // of an edge that it does not connect
};

Edges look_at(const CommState& state, const TransportTable& by);

/// Reason why this rank cannot address the memory of its peers, or of those on its host; empty if
/// it can.
std::string no_peers(const CommState& state, bool of_host = false);

/// Reason why a store of `line_bytes` bytes to a peer, or to one on this host, may land in parts;
/// empty if all land whole.
std::string short_peer_lines(const CommState& state, int line_bytes, bool of_host = false);

/// Reason why the ranks, or those on this host, have no multicast memory for a candidate, or the
/// program no code for it; empty if they have. It asks the driver only if CCL_NVLS_ENABLE is 1.
std::string no_multicast(const CommState& state, const CandidateFacts& one, bool of_host = false);

/// Reason why this communicator has no levels for a candidate; empty if it has.
std::string no_levels(const CommState& state, const CandidateFacts& one, const HostShape& shape);

}  // namespace ccl::detail
