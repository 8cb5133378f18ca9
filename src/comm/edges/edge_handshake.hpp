#pragma once

#include <ccl/transport/transport.hpp>

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/state.hpp"

namespace ccl::detail {

/// Number of an edge, equal at both ends and unique for each composition and direction.
inline std::uint64_t edge_id(int composition, int sender, int receiver) {
  return std::uint64_t(composition) << 40 | std::uint64_t(sender) << 20 | std::uint64_t(receiver);
}

/// An edge to create with a peer, which has the same edge with this rank.
struct EdgeHandshake {
  int peer;
  std::uint64_t id;
  std::function<Result<Handshake>()> offer;
  std::function<Result<void>(const Handshake& theirs)> connect;
  const char* by = "";         // transport of this rank for the edge; must be the same at both ends
  std::uint64_t channels = 0;  // hash of the channels; must be the same at both ends
};

/// Handshake of an end and the name of its transport.
struct Offer {
  Handshake handshake{};
  char by[16] = {};
  Offer() = default;
  Offer(const Handshake& mine, std::string_view transport) : handshake{mine} {
    transport.copy(by, sizeof by - 1);
  }
};
/// Reads the offer of a peer. Returns what does not fit, or an empty text.
std::string read_offer(Offer& theirs, std::span<const std::byte> message);
/// Fails with `Errc::mismatch` if the offer of rank `peer` is not of the transport `mine` of rank
/// `me`.
Result<void> check_same_transport(const Offer& theirs, int peer, const char* mine, int me);

/// Returns the error that the other ranks sent, if one arrives within 2 s; else `error`. A peer
/// that closed its connection may have done so because a third rank died.
Error root_cause(const CommState& state, Error error);

/// Context that the communicator gives to the transports of one composition.
TransportContext transport_context(CommState& state, GpuArena* arena);

/// Creates edges: all offers first, then all connections. Succeeds on all ranks or fails on all,
/// and errors name the peer. Collective, also for ranks without edges; the caller holds the
/// bootstrap.
/// - `so_far` is the result of the preparation on this rank. An error fails all ranks.
/// - `rendezvous_points` must be in one order for all ranks. No ranks then wait for each other in a
/// circle.
Result<void> swap_handshakes(CommState& state, std::string_view name, const char* transport,
                             const Result<void>& so_far,
                             const std::vector<EdgeHandshake>& rendezvous_points);

}  // namespace ccl::detail
