#pragma once

#include <ccl/transport/transport.hpp>

#include <memory>

namespace ccl {
namespace detail {
struct ShmEnd;
}

/// Between processes of a host. The receiver makes one anonymous block of memory for all channels
/// and hands it to the sender over a Unix socket: nothing has a name in /dev/shm or elsewhere, so
/// nothing is left behind however a process ends. GPUs without access to each other use it, too:
/// both pin the block. Their lines then land in pieces of 8 bytes, too short for LL128.
struct ShmTransport {
  static constexpr const char* name = "shm";
  static constexpr Scope scope = Scope::host;
  static constexpr bool peer_addressable = false;  // the slots are shared, users' buffers are not
  static constexpr bool proxied = false;
  static constexpr int atomic_line_bytes = 128;  // between CPUs; see `edge_transport`

  /// One end before the other is known. No end's `connect` waits for the other's: a thread gives
  /// the memory away as long as a receiver of this process has not been asked for it.
  class End {
   public:
    Handshake handshake() const;
    Result<Connection> connect(const Handshake& theirs);

   private:
    friend struct ShmTransport;
    std::shared_ptr<detail::ShmEnd> end_;
  };

  /// Refuses other hosts (and network namespaces), and everything if CCL_SHM_DISABLE is 1.
  static Result<void> can_connect(const PeerInfo& from, const PeerInfo& to);
  static Result<End> setup(TransportContext& context, const Edge& edge);
  static EdgeTransport edge_transport(const PeerInfo& from, const PeerInfo& to);
};
static_assert(Transport<ShmTransport>);

}  // namespace ccl
