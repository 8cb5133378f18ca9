#pragma once

#include <ccl/transport/transport.hpp>

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "comm/state.hpp"

namespace ccl::detail {

/// Both ends of an edge give it the same number; one for each composition and direction.
inline std::uint64_t edge_id(int composition, int sender, int receiver) {
  return std::uint64_t(composition) << 40 | std::uint64_t(sender) << 20 | std::uint64_t(receiver);
}

/// One edge to be made with a peer, which has the same with this rank.
struct EdgeHandshake {
  int peer;
  std::uint64_t id;
  std::function<Result<Handshake>()> offer;
  std::function<Result<void>(const Handshake& theirs)> connect;
  const char* by = "";  // the transport that this rank takes for it; both are to take the same
  std::uint64_t channels = 0;  // those that it wants, mixed; both are to want the same
};

/// What an end says: its handshake, and of which transport it is.
struct Offer {
  Handshake handshake{};
  char by[16] = {};
  Offer() = default;
  Offer(const Handshake& mine, std::string_view transport) : handshake{mine} {
    transport.copy(by, sizeof by - 1);
  }
};
/// That of rank `peer`; it must be of the transport that rank `me` takes.
Result<void> check_same_transport(const Offer& theirs, int peer, const char* mine, int me);

/// A peer that hangs up may only have heard sooner of a rank that died: the bootstrap knows whom.
/// May wait for two seconds for it.
Error root_cause(const CommState& state, Error error);

/// What the communicator lends to the transports of one composition.
TransportContext transport_context(CommState& state, GpuArena* arena);

/// Makes edges: all offers first, then all connections. Collective: all ranks of the communicator
/// call it, with edges or without, and it succeeds on all or fails on all. `so_far`: what a rank
/// has prepared; who has failed there says so here. `rendezvous_points` are in one order for all ranks:
/// whoever waits for an edge then waits for a rank that is at an edge before it, so that nobody
/// waits in a circle. Errors name the peer. The caller holds the bootstrap.
Result<void> swap_handshakes(CommState& state, std::string_view name, const char* transport,
                         const Result<void>& so_far, const std::vector<EdgeHandshake>& rendezvous_points);

}  // namespace ccl::detail
