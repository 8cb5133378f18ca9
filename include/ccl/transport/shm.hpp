#pragma once

#include <ccl/transport/transport.hpp>

#include <memory>

namespace ccl {
namespace detail {
struct ShmEnd;
}

/// Transport between processes of a host. The receiver creates one anonymous block of memory for
/// all channels and sends it to the sender over a Unix socket. Nothing has a name in /dev/shm or
/// elsewhere, so no process leaves anything behind.
///
/// GPUs without access to each other use it too, and both pin the block. Their lines then land in
/// pieces of 8 bytes, which is too short for LL128.
struct ShmTransport {
  static constexpr const char* name = "shm";
  static constexpr Scope scope = Scope::host;
  /// The slots are shared, the users' buffers are not.
  static constexpr bool peer_addressable = false;
  static constexpr bool proxied = false;
  static constexpr int atomic_line_bytes = 128;  ///< between CPUs; 8 between GPUs

  /// One end before its connection to the other. The `connect` of one end never waits for that of
  /// the other. A thread serves the memory until every receiver of the process has handed its
  /// memory over.
  class End {
   public:
    Handshake handshake() const;
    [[nodiscard]] Result<Connection> connect(const Handshake& theirs);

   private:
    friend struct ShmTransport;
    std::shared_ptr<detail::ShmEnd> end_;
  };

  /// Refuses ranks of other hosts and network namespaces, and all ranks if CCL_SHM_DISABLE is 1.
  [[nodiscard]] static Result<void> can_connect(const PeerInfo& from, const PeerInfo& to);
  [[nodiscard]] static Result<End> setup(TransportContext& context, const Edge& edge);
  static EdgeTransport edge_transport(const PeerInfo& from, const PeerInfo& to);
};
static_assert(Transport<ShmTransport>);

}  // namespace ccl
