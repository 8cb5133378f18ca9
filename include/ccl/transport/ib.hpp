#pragma once

#include <ccl/detail/transport/proxied_end.hpp>

namespace ccl {
namespace detail {
struct IbLink;
}

/// Between ranks that have RDMA ports, InfiniBand or RoCE. Each end has its own ring of slots. The
/// receiver tells the sender by RDMA write which slots are free; the sender writes a step straight
/// into its slot and announces it with an immediate. The CCL_IB_ settings choose ports and
/// addresses, and over how many queue pairs and devices a step is spread. Queue pairs that fail are
/// made anew, on another device where there is one, and what was under way is sent again. A GPU's
/// rings lie in pinned memory of its host.
struct IbTransport {
  static constexpr const char* name = "ib";
  static constexpr TransportKind kind = TransportKind::rdma;
  static constexpr Scope scope = Scope::network;
  static constexpr bool peer_addressable = false;
  static constexpr bool proxied = true;
  static constexpr int atomic_line_bytes = 128;  // a step is seen when all of it has come

  using End = detail::ProxiedEnd<detail::IbLink>;

  /// Refuses, with the reason, unless both have an active port of one kind and CCL_NET allows it.
  static Result<void> can_connect(const PeerInfo& from, const PeerInfo& to);
  /// Needs `context.proxy`, and wakes or helps by whoever uses the wires; see `ProxyEngine`.
  static Result<End> setup(TransportContext& context, const Edge& edge);
};
static_assert(Transport<IbTransport>);

}  // namespace ccl
