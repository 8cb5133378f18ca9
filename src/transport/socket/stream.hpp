#pragma once

#include <ccl/detail/transport/zero_copy.hpp>
#include <ccl/detail/runtime/proxy_engine.hpp>
#include <ccl/transport/transport.hpp>

#include <atomic>
#include <deque>
#include <memory>
#include <vector>

#include "base/fd.hpp"
#include "transport/proxied/reverse_link.hpp"
#include "transport/proxied/link.hpp"
#include "net/address.hpp"
#include "net/socket.hpp"

namespace ccl::detail {

// How steps travel. A channel has one socket or several, each a stream. The first carries, for
// every step in order, a header and the step's first piece; the others carry the further pieces of
// large steps and nothing else: how large follows from the header.
struct StepHeader {
  Word step;   // `goodbye`: the sender has gone in peace
  Word bytes;  // of the step, on all streams together
};
constexpr Word goodbye = ~Word(0);

/// Which part of a step a stream carries. Small steps go whole through the first: another socket
/// would cost a system call at each end.
struct Piece {
  Index offset = 0, bytes = 0;
  static Piece of(Index step_bytes, int stream, int streams) {
    constexpr Index small = 128 << 10;
    if (streams == 1 || step_bytes <= small) return {0, stream == 0 ? step_bytes : 0};
    const Index part = div_up(div_up(step_bytes, Index(streams)), Index(128)) * 128;
    const Index from = std::min(part * stream, step_bytes);
    return {from, std::min(part, step_bytes - from)};
  }
};

/// One end of a connection, shared by its streams. Line n of the connection is stream n modulo
/// `streams` of channel n / streams.
///
/// Where two ranks make the edges of both directions at once, alike and with one stream for each
/// channel, both edges use the TCP connections that the lower rank makes for its own: the data of
/// one direction then carries the acknowledgements of the other, which otherwise are every third
/// packet of small messages. Each of the two streams at an end has a descriptor of its own for the
/// socket; that of the edge in is the only one that reads, and its goodbye is that of both.
struct SocketLink : ProxiedLink, ReverseLink<SocketLink> {
  static constexpr const char* name = "socket";

  std::deque<ZeroCopy> zero_copies;        // one for each wire, of CPU lanes
  int streams = 1;                    // of a channel
  std::vector<ProxyEngine*> engines;  // that drive the streams
  /// A channel's streams have different ones. Of a GPU's, so have channels: nobody helps those.
  /// Lanes of a CPU help the communicator's own, where the first stream stays.
  ProxyEngine& engine_of(int channel, int stream) const {
    const int first = polled ? channel : 0;
    return *engines[std::size_t(first + stream) % engines.size()];
  }
  std::unique_ptr<std::atomic<Word>[]> done;       // channels * streams: steps done by each stream
  std::unique_ptr<std::atomic<Word>[]> announced;  // channels: steps whose header has come

  std::vector<net::Interface> nics;  // this end's
  Result<void> prepare();
  Result<std::vector<net::Address>> listeners() const;
  void prepare_wires();
  std::atomic<bool> both_ways{false};  // has its sockets in common with the mate
  std::atomic<bool> peer_left{false};  // heard by the mate
  bool lines_go_both_ways() const { return lower_ && both_ways; }
  bool lines_come() const { return !lower_ && both_ways; }
  void lend(std::size_t line, int socket);
  std::size_t lines() const { return std::size_t(edge.shape.channels) * std::size_t(streams); }
  /// Large steps of a channel use all doors; so do small ones of several channels or peers.
  std::size_t listener_of(std::size_t line) const {
    const auto each = std::size_t(streams);
    return std::size_t(edge.self.rank + edge.peer.rank) + line / each + line % each;
  }
  void tell(Handshake& mine, HandshakeCursor& cursor);
  Result<void> hear(const Handshake& theirs, HandshakeCursor& cursor);
  static Result<void> receive(const std::shared_ptr<SocketLink>& link);
  static Result<void> send(const std::shared_ptr<SocketLink>& link, std::size_t line, Fd socket);
  Result<void> wait_connected(const net::Deadline&) { return {}; }
  void wake();

  /// After a step of one stream: tells the lanes, when all streams of the channel are that far.
  void publish(int channel, int stream, Word steps);
  /// The owner is gone, or that of the edge back: who shares its sockets has said goodbye for both.
  /// The peer, which may have left before, answers that by a reset, and so takes back its own
  /// goodbye where the network had lost it.
  bool leaving() const;
  /// The first failure of the communicator; nothing if we are leaving anyway.
  void lose(const char* what, int os_code);
  void fail_with(Errc code, std::string what, int os_code = 0);

 private:
  // What ends know of each other while they connect, all by the thread that connects them.
  bool offered_ = false;   // a sender: the edge back would have its lines from here
  bool lower_ = false;     // a sender of the lower rank, which makes lines in common
  bool answered_ = false;  // a sender that has heard
  void set_streams(int count);
};

std::shared_ptr<ProxyTask> make_send_stream(std::shared_ptr<SocketLink> link, int channel,
                                            int stream, Fd socket);
std::shared_ptr<ProxyTask> make_receive_stream(std::shared_ptr<SocketLink> link, int channel,
                                               int stream);

}  // namespace ccl::detail
