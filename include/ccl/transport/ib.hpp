#pragma once

#include <ccl/detail/transport/proxied_end.hpp>
#include <ccl/transport/transport.hpp>

namespace ccl {
namespace detail {
struct IbLink;
}

/// RDMA transport between ranks with InfiniBand or RoCE ports. Each end has its own ring of slots.
/// The receiver announces free slots by RDMA write; the sender writes a step directly into its slot
/// and announces it with an immediate.
///
/// The CCL_IB_ settings select ports, addresses, and the queue pairs and devices over which a step
/// is spread. Failed queue pairs are recreated, on another device if there is one, and data in
/// flight is sent again. A GPU's rings lie in pinned host memory.
struct IbTransport {
  static constexpr const char* name = "ib";
  static constexpr TransportKind kind = TransportKind::rdma;
  static constexpr Scope scope = Scope::network;
  static constexpr bool peer_addressable = false;
  static constexpr bool proxied = true;
  /// A step is visible only when all of it has arrived.
  static constexpr int atomic_line_bytes = 128;

  using End = detail::ProxiedEnd<detail::IbLink>;

  /// Fails with the reason unless both ranks have an active port of one kind and CCL_NET allows it.
  [[nodiscard]] static Result<void> can_connect(const PeerInfo& from, const PeerInfo& to);
  /// Creates one end. Requires `context.proxy`, and calls to `ProxyEngine` by the threads that use
  /// the wires.
  [[nodiscard]] static Result<End> setup(TransportContext& context, const Edge& edge);
};
static_assert(Transport<IbTransport>);

}  // namespace ccl
