#pragma once

#include <ccl/transport/transport.hpp>

#include <memory>

namespace ccl {
namespace detail {
struct P2pEnd;
}

/// Between GPUs that can address each other's memory (NVLink, PCIe): of one host or, by fabric
/// handles, of hosts that one NVLink domain joins. Slots lie in the receiver's memory, where the
/// sender writes them; credits in the sender's. In read mode (CCL_P2P_READ_ENABLE) slots whose
/// packets carry no flags lie in the sender's, where the receiver reads them. Memory is shared
/// directly within a process; between processes by cuMem handles, passed as file descriptors over a
/// Unix socket, or by legacy IPC handles where CCL_CUMEM_ENABLE is 0. Two GPUs that have NVLink to
/// a third one and none to each other go through its memory: the sender writes there and the
/// receiver reads from there.
struct P2pTransport {
  static constexpr const char* name = "p2p";
  static constexpr TransportKind kind = TransportKind::p2p;
  static constexpr Scope scope = Scope::host;
  static constexpr bool peer_addressable = true;
  static constexpr bool proxied = false;
  static constexpr int atomic_line_bytes = 128;  // shown by a litmus test on NVLink

  /// One end before the other is known.
  class End {
   public:
    Handshake handshake() const;
    /// Also writes to the peer's memory and reads it back: a path that does not work is an error
    /// that names it.
    Result<Connection> connect(const Handshake& theirs);

   private:
    friend struct P2pTransport;
    std::shared_ptr<detail::P2pEnd> end_;
  };

  /// Whether all of the one's memory is the other's to address. Refuses CPU ranks, other hosts,
  /// GPUs without peer access or farther apart than CCL_P2P_LEVEL, pairs whose path has failed its
  /// check, and everything if CCL_P2P_DISABLE is 1.
  static Result<void> can_address(const PeerInfo& from, const PeerInfo& to);
  /// The same, or both address the GPU between them, or they are on hosts that one NVLink domain
  /// joins.
  static Result<void> can_connect(const PeerInfo& from, const PeerInfo& to);
  /// Lines of 128 bytes land whole where that is proven: within a GPU and over NVLink of one host,
  /// without another GPU in between.
  static EdgeTransport edge_transport(const PeerInfo& from, const PeerInfo& to);
  static Result<End> setup(TransportContext& context, const Edge& edge);
};
static_assert(Transport<P2pTransport>);

}  // namespace ccl
