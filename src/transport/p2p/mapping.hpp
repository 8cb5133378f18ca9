#pragma once

#include <ccl/transport/transport.hpp>

#include <cstddef>
#include <string>

#include "gpu/memory.hpp"
#include "transport/fd_server.hpp"

namespace ccl::detail {

/// A block of this rank's GPU memory and one of a peer's, each mapped by the other. P2P wires and
/// peer views consist of them. Used like the end of a transport: make, handshake, connect.
class P2pMapping {
 public:
  /// Words of the first line behind the wires' word: no wire uses them.
  static constexpr std::size_t probed_words_of_wires = words_per_line - 1;

  P2pMapping() = default;
  /// The peer of `edge` maps `mine`; its own block must have `theirs_bytes` bytes. One end may have
  /// no block, and the other then expects none. The edge's side distinguishes the ends.
  ///
  /// `probed_words`: see `connect`; equal at both ends. `reads`: wires in read mode; `connect`
  /// fails unless both ends agree.
  static Result<P2pMapping> make(const TransportContext& context, const Edge& edge, GpuBlock mine,
                                 std::size_t theirs_bytes,
                                 std::size_t probed_words = probed_words_of_wires,
                                 bool reads = false);
  Handshake handshake() const;
  /// Maps the peer's block. Also writes a zero, unused word of the block and reads it back; a
  /// broken path is an error that names it. The word is one of `probed_words`, by this rank's
  /// number, behind the first of the block. Without probed words it does neither.
  Result<void> connect(const Handshake& theirs);

  const GpuBlock& mine() const { return mine_; }
  const GpuBlock& theirs() const { return theirs_; }

 private:
  struct OpenReply;
  /// Returns what does not fit, or an empty text.
  std::string wrong(const OpenReply& said) const;
  Result<void> scope(const OpenReply& said);
  Result<void> probe(const Gpu& gpu) const;

  TransportContext context_;
  Edge edge_;
  GpuBlock mine_, theirs_;
  std::size_t theirs_bytes_ = 0;
  std::size_t probed_words_ = 0;
  bool reads_ = false;
  Nonce nonce_{};
  FdOffer offer_;
};

}  // namespace ccl::detail
