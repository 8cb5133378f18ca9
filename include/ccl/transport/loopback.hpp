#pragma once

#include <ccl/transport/transport.hpp>

#include <memory>

namespace ccl {
namespace detail {
struct LoopbackMemory;
}

/// Transport between ranks of one process. The receiver allocates the slots, and the sender stores
/// into them. The memory lives until both ends have released it.
struct LoopbackTransport {
  static constexpr const char* name = "loopback";
  static constexpr Scope scope = Scope::process;
  static constexpr bool peer_addressable = true;
  static constexpr bool proxied = false;
  static constexpr int atomic_line_bytes = 128;

  /// One end before its connection to the other.
  class End {
   public:
    Handshake handshake() const;
    [[nodiscard]] Result<Connection> connect(const Handshake& theirs);

   private:
    friend struct LoopbackTransport;
    Edge edge_;
    std::shared_ptr<detail::LoopbackMemory> memory_;  // null at the sender until it has connected
  };

  [[nodiscard]] static Result<void> can_connect(const PeerInfo& from, const PeerInfo& to);
  [[nodiscard]] static Result<End> setup(TransportContext& context, const Edge& edge);
};
static_assert(Transport<LoopbackTransport>);

}  // namespace ccl
