#pragma once

#include <ccl/detail/transport/proxied_end.hpp>
#include <ccl/transport/transport.hpp>

namespace ccl {
namespace detail {
struct PlugInLink;
}

/// Transport over a network plug-in of NCCL, such as those for EFA and of vendors. `CCL_NET_PLUGIN`
/// names libraries and `CCL_NET` the plug-in. Each channel is a connection of the plug-in; a step
/// is one message. A GPU's rings lie in its memory if the plug-in takes it, else in pinned host
/// memory.
///
/// The plug-in's data is not authenticated or encrypted. The ends exchange its handles over an
/// authenticated TCP connection, which also shows when a process has ended.
struct PluginTransport {
  static constexpr const char* name = "plugin";
  static constexpr Scope scope = Scope::network;
  static constexpr bool peer_addressable = false;
  static constexpr bool proxied = true;
  /// A step is visible only when all of it has arrived.
  static constexpr int atomic_line_bytes = 128;

  using End = detail::ProxiedEnd<detail::PlugInLink>;

  /// Fails with the reason unless both ranks have a plug-in of the same name.
  [[nodiscard]] static Result<void> can_connect(const PeerInfo& from, const PeerInfo& to);
  /// Creates one end. Requires `context.proxy`, and calls to `ProxyEngine` by the threads that use
  /// the wires.
  [[nodiscard]] static Result<End> setup(TransportContext& context, const Edge& edge);
};
static_assert(Transport<PluginTransport>);

}  // namespace ccl
