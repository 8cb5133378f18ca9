#pragma once

#include <ccl/detail/runtime/proxy_engine.hpp>
#include <ccl/detail/transport/zero_copy.hpp>
#include <ccl/transport/transport.hpp>

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "net/address.hpp"
#include "net/secure_socket.hpp"
#include "net/socket.hpp"
#include "transport/handshake_fields.hpp"
#include "transport/proxied/link.hpp"
#include "transport/proxied/reverse_link.hpp"

namespace ccl::detail {

// Header of a step. A channel has one socket or several, each a stream. The first carries a header
// and the first piece of every step in order. The others carry only the further pieces of large
// steps, whose sizes follow from the header.
struct StepHeader {
  Word step;   // `close_notify`: the sender has closed without an error
  Word bytes;  // of the step, on all streams together
};
constexpr Word goodbye = ~Word(0);
constexpr Word rests = goodbye - 1;  // the sender disconnects until it has a step
/// Bytes of a receiver: it closes without an error, or has received `rests`.
constexpr std::byte closes{0}, rests_too{1};

/// Part of a step that a stream carries. Small steps use the first stream only: another socket
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

/// One end of a connection, shared by its streams. Socket n of the connection is stream n modulo
/// `streams` of channel n / streams.
///
/// Two ranks may make the edges of both directions at once, alike and with one stream for each
/// channel. Both edges then use the TCP connections of the lower rank. The data of one direction
/// carries the acknowledgments of the other, which otherwise are every third packet of small
/// messages.
///
/// Ends that open late share none: one direction may be needed long before the other. Therefore no
/// end opens late without a setting.
///
/// Each of the two streams at an end has a descriptor of its own for the socket. Only that of the
/// incoming edge reads, and its close counts for both.
struct SocketLink : ProxiedLink, ReverseLink<SocketLink> {
  static constexpr const char* name = "socket";
  static constexpr bool may_open_late = true;
  static constexpr bool late_needs_setting = true;

  std::deque<ZeroCopy> zero_copies;   // one for each wire, of CPU lanes
  int streams = 1;                    // of a channel
  std::vector<ProxyEngine*> engines;  // that drive the streams
  /// Engine of a stream. A channel's streams have different engines, and so have channels of a GPU,
  /// which nothing helps. Lanes of a CPU help the communicator's own engine, which runs the first
  /// stream.
  ProxyEngine& engine_of(int channel, int stream) const {
    const int first = polled ? channel : 0;
    return *engines[std::size_t(first + stream) % engines.size()];
  }
  std::unique_ptr<std::atomic<Word>[]> done;       // channels * streams: steps done by each stream
  std::unique_ptr<std::atomic<Word>[]> announced;  // channels: steps whose header has arrived

  std::vector<net::Interface> nics;  // this end's
  /// Index of the receiver's listener for the first stream of each channel, modulo their number;
  /// `any_listener`: the topology names no interface that is in use.
  static constexpr std::uint8_t any_listener = 0xff;
  std::array<std::uint8_t, 32> near{};
  std::vector<ProxyEngine*> drivers() const { return engines; }
  Result<void> prepare();
  void choose_listeners();
  Result<std::vector<net::Address>> listeners() const;
  void prepare_wires();
  std::atomic<bool> both_ways{false};  // shares its sockets with the mate
  std::atomic<bool> peer_left{false};  // as the mate received it
  bool lines_go_both_ways() const { return lower_ && both_ways; }
  bool lines_come() const { return !lower_ && both_ways; }
  void lend(std::size_t line, const net::SecureSocket& socket);
  std::size_t lines() const { return std::size_t(edge.shape.channels) * std::size_t(streams); }
  /// Large steps of a channel use all listeners. Small steps use that of the interface which the
  /// topology chooses for the channel, else channels and peers take turns.
  std::size_t listener_of(std::size_t line) const {
    const auto each = std::size_t(streams), channel = line / each, stream = line % each;
    if (const std::size_t first = near[channel % near.size()]; first != any_listener) {
      return first + stream;
    }
    return std::size_t(edge.self.rank + edge.peer.rank) + channel + stream;
  }
  void write_fields(Handshake& mine, HandshakeCursor& cursor);
  Result<void> read_fields(const Handshake& theirs, HandshakeCursor& cursor);
  static Result<void> receive(const std::shared_ptr<SocketLink>& link);
  static Result<void> send(const std::shared_ptr<SocketLink>& link, std::size_t line,
                           net::SecureSocket socket);
  Result<void> wait_connected(const net::Deadline&) { return {}; }
  void wake();
  /// Returns the name of the interface of a connected socket, or its address.
  std::string interface_of(int socket) const;

  /// Posts to the lanes after a step of one stream, once all streams of the channel have got that
  /// far.
  void publish(int channel, int stream, Word steps);
  /// True if the owner, or that of the reverse edge, is destroyed: one close of a shared socket
  /// counts for both. A peer that left earlier answers the close by a reset, which cancels its own
  /// close if the network had lost it.
  bool leaving() const;
  /// Records the first failure of the communicator, unless this end is closing.
  void lose(const char* what, int os_code);
  void fail_with(Errc code, std::string what, int os_code = 0);
  /// Fails the communicator as `fail_with` does, if a late connection cannot be made.
  void fail_to_open(Error error);

 private:
  // State while the ends connect, used only by the connecting thread.
  bool offered_ = false;   // a sender: the reverse edge would use its sockets
  bool lower_ = false;     // a sender of the lower rank, which makes shared sockets
  bool answered_ = false;  // a sender that has received the answer
  void set_streams(int count);
};

std::shared_ptr<ProxyTask> make_send_stream(std::shared_ptr<SocketLink> link, int channel,
                                            int stream, net::SecureSocket socket);
std::shared_ptr<ProxyTask> make_receive_stream(std::shared_ptr<SocketLink> link, int channel,
                                               int stream);

}  // namespace ccl::detail
