#pragma once

#include <ccl/detail/transport/proxied_end.hpp>

namespace ccl {
namespace detail {
struct SocketLink;
}

/// Between any two ranks, over TCP. Each end has its own ring of slots; the proxies copy between
/// them and the network. `CCL_SOCKET_IFNAME` chooses the interface, `CCL_NSOCKS_PERTHREAD` and
/// `CCL_SOCKET_NTHREADS` over how many sockets, and threads, large steps are spread. A GPU's rings
/// lie in pinned memory of its host.
struct SocketTransport {
  static constexpr const char* name = "socket";
  static constexpr Scope scope = Scope::network;
  static constexpr bool peer_addressable = false;
  static constexpr bool proxied = true;
  static constexpr int atomic_line_bytes = 128;  // a step is seen when all of it has come

  using End = detail::ProxiedEnd<detail::SocketLink>;

  static Result<void> can_connect(const PeerInfo& from, const PeerInfo& to);
  /// Needs `context.proxy`, and wakes or helps by whoever uses the wires; see `ProxyEngine`.
  static Result<End> setup(TransportContext& context, const Edge& edge);
};
static_assert(Transport<SocketTransport>);

}  // namespace ccl
