#pragma once

#include <ccl/transport/any_of.hpp>

namespace ccl {

/// Network that reduces between hosts, such as InfiniBand SHARP, through a plug-in with NCCL's
/// CollNet interface. It joins hosts for `CollNetChain` and `CollNetDirect`; their wires inside a
/// host are those of `P2pTransport`, `LoopbackTransport` and `ShmTransport`.
///
/// `CCL_COLLNET_ENABLE=1` allows it, and `CCL_NET_PLUGIN` names the plug-in. The heads of a host
/// exchange their sums with it; a proxy drives the steps. Slots lie in host memory, pinned where
/// the lanes are a GPU's.
struct CollNetTransport : AnyOf<P2pTransport, LoopbackTransport, ShmTransport> {
  static constexpr const char* name = "collnet";
  static constexpr Scope scope = Scope::network;
  static constexpr bool proxied = true;
  static constexpr bool only_reduces = true;  ///< carries no messages between hosts

  /// Fails for ranks of two hosts, between which only sums travel.
  [[nodiscard]] static Result<void> can_connect(const PeerInfo& from, const PeerInfo& to);
  static EdgeTransport edge_transport(const PeerInfo& from, const PeerInfo& to);
  /// Creates one end of a wire inside a host.
  [[nodiscard]] static Result<End> setup(TransportContext& context, const Edge& edge);
};
static_assert(Transport<CollNetTransport>);

template <>
inline constexpr bool offers_network<CollNetTransport> = true;

}  // namespace ccl
