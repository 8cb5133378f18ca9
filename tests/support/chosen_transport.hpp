#pragma once

// Transport that is chosen at run time, so that element loops are compiled once, with ranks as
// threads.
#include <ccl/collective.hpp>
#include <ccl/transport/loopback.hpp>
#include <ccl/transport/shm.hpp>
#include <ccl/transport/socket.hpp>

#include "support/on_ranks.hpp"

namespace ccl::test {

inline detail::TransportTable chosen = detail::transport_table<LoopbackTransport>();

/// Any transport, by `chosen`.
struct ChosenTransport {
  static constexpr const char* name = "chosen";
  static constexpr Scope scope = Scope::network;
  static constexpr bool peer_addressable = false;
  static constexpr bool proxied = true;
  static constexpr int atomic_line_bytes = 128;
  static Result<void> can_connect(const PeerInfo& a, const PeerInfo& b) {
    return chosen.can_connect(a, b);
  }
  struct End {
    std::unique_ptr<detail::AnyEnd> end;
    Handshake handshake() { return end->handshake(); }
    Result<Connection> connect(const Handshake& theirs) { return end->connect(theirs); }
  };
  static Result<End> setup(TransportContext& context, const Edge& edge) {
    CCL_TRY(auto end, chosen.setup(context, edge));
    return End{std::move(end)};
  }
};

}  // namespace ccl::test

/// Algorithms over multicast memory take it between CPU ranks, whatever is chosen.
template <>
inline constexpr ccl::MulticastKind ccl::multicast_of<ccl::test::ChosenTransport> =
    ccl::MulticastKind::switches;
