#pragma once

#include <ccl/transport/transport.hpp>

#include <memory>

namespace ccl {
namespace detail {
struct P2pEnd;
}

/// Transport between GPUs that can address each other's memory over NVLink or PCIe. The GPUs are on
/// one host, or share fabric handles within one NVLink domain. Slots lie in the receiver's memory,
/// where the sender writes them, and credits in the sender's memory.
///
/// - Read mode (CCL_P2P_READ_ENABLE): slots of packets without flags lie in the sender's memory,
///   where the receiver reads them.
/// - Within a process: memory is shared directly.
/// - Between processes: by cuMem handles, as file descriptors over a Unix socket, or by legacy IPC
///   handles if CCL_CUMEM_ENABLE is 0.
/// - Relay: two GPUs with NVLink to a third and none to each other use its memory. The sender
///   writes there, and the receiver reads from there.
struct P2pTransport {
  static constexpr const char* name = "p2p";
  static constexpr TransportKind kind = TransportKind::p2p;
  static constexpr Scope scope = Scope::host;
  static constexpr bool peer_addressable = true;
  static constexpr bool proxied = false;
  static constexpr int atomic_line_bytes = 128;  ///< from a litmus test on NVLink

  /// One end before its connection to the other.
  class End {
   public:
    Handshake handshake() const;
    /// Connects to the other end, then writes to the peer's memory and reads it back. Fails with an
    /// error that names the path if the path does not work.
    [[nodiscard]] Result<Connection> connect(const Handshake& theirs);

   private:
    friend struct P2pTransport;
    std::shared_ptr<detail::P2pEnd> end_;
  };

  /// Succeeds if each rank can address all of the other's memory. Refuses
  /// - CPU ranks, and ranks of hosts that no NVLink domain joins,
  /// - GPUs without peer access, or farther apart than CCL_P2P_LEVEL,
  /// - pairs whose path has failed its check,
  /// - all ranks if CCL_P2P_DISABLE is 1.
  [[nodiscard]] static Result<void> can_address(const PeerInfo& from, const PeerInfo& to);
  /// Succeeds if `can_address` does, or if both GPUs address a GPU between them.
  [[nodiscard]] static Result<void> can_connect(const PeerInfo& from, const PeerInfo& to);
  /// Returns the edge transport. Lines of 128 bytes land whole only if that is proven: within a
  /// GPU, and over NVLink of one host without a GPU in between.
  static EdgeTransport edge_transport(const PeerInfo& from, const PeerInfo& to);
  [[nodiscard]] static Result<End> setup(TransportContext& context, const Edge& edge);
};
static_assert(Transport<P2pTransport>);

template <>
inline constexpr bool offers_peer_view<P2pTransport> = true;

}  // namespace ccl
