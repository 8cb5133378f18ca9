#pragma once

#include <ccl/transport/transport.hpp>

#include "gpu/memory.hpp"
#include "transport/fd_server.hpp"

namespace ccl::detail {

/// A block of this rank's GPU memory and one of a peer's, each mapped by the other: what P2P wires
/// and peer views are made of. As the ends of a transport: make, handshake, connect.
class P2pMapping {
 public:
  P2pMapping() = default;
  /// `mine` is shown to the peer of `edge`, whose block must have `theirs_bytes`. One of the ends
  /// may have none, and the other then wants none. The edge's side tells the ends apart. `probe`:
  /// see `connect`; the same at both ends. `reads`: wires in read mode; `connect` refuses an end
  /// that says otherwise.
  static Result<P2pMapping> make(const TransportContext& context, const Edge& edge, GpuBlock mine,
                                 std::size_t theirs_bytes, bool probe = true, bool reads = false);
  Handshake handshake() const;
  /// Where it may probe, it also writes a word of the peer's block, which must be zero and not yet
  /// in use, and reads it back: a path that does not work is an error that names it.
  Result<void> connect(const Handshake& theirs);

  const GpuBlock& mine() const { return mine_; }
  const GpuBlock& theirs() const { return theirs_; }

 private:
  struct OpenReply;
  Result<void> scope(const OpenReply& said);
  Result<void> probe(const Gpu& gpu) const;

  TransportContext context_;
  Edge edge_;
  GpuBlock mine_, theirs_;
  std::size_t theirs_bytes_ = 0;
  bool probe_ = true, reads_ = false;
  Nonce nonce_{};
  FdOffer offer_;
};

}  // namespace ccl::detail
