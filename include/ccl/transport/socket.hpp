#pragma once

#include <ccl/detail/transport/proxied_end.hpp>
#include <ccl/transport/transport.hpp>

namespace ccl {
namespace detail {
struct SocketLink;
}

/// TCP transport between any two ranks. Each end has its own ring of slots, and the proxies copy
/// between the rings and the network. A GPU's rings lie in pinned host memory.
///
/// `CCL_SOCKET_IFNAME` selects the interface. `CCL_NSOCKS_PERTHREAD` and `CCL_SOCKET_NTHREADS` set
/// the numbers of sockets and threads over which large steps are spread.
struct SocketTransport {
  static constexpr const char* name = "socket";
  static constexpr Scope scope = Scope::network;
  static constexpr bool peer_addressable = false;
  static constexpr bool proxied = true;
  /// A step is visible only when all of it has arrived.
  static constexpr int atomic_line_bytes = 128;

  using End = detail::ProxiedEnd<detail::SocketLink>;

  /// Fails with the reason if CCL_NET excludes sockets.
  [[nodiscard]] static Result<void> can_connect(const PeerInfo& from, const PeerInfo& to);
  /// Creates one end. Requires `context.proxy`, and calls to `ProxyEngine` by the threads that use
  /// the wires.
  [[nodiscard]] static Result<End> setup(TransportContext& context, const Edge& edge);
};
static_assert(Transport<SocketTransport>);

}  // namespace ccl
