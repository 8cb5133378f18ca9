#pragma once

#include <ccl/bypass.hpp>
#include <ccl/proxy.hpp>
#include <ccl/status.hpp>
#include <ccl/transport/transport.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "fd.hpp"
#include "transport/wire_memory.hpp"

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

/// Sockets on their way from the listening thread to the streams that wait for them.
struct Mailbox {
  explicit Mailbox(std::size_t count) : sockets(count) {
    for (auto& socket : sockets) socket.store(-1);
  }
  ~Mailbox() {
    for (auto& socket : sockets) Fd{socket.exchange(-1)};
  }
  std::vector<std::atomic<int>> sockets;
};

/// One end of a connection, shared by its streams.
struct SocketLink {
  Edge edge;
  Status* status = nullptr;
  Mapping memory;
  std::vector<Wire> wires;            // as the proxy sees them
  std::deque<Bypass> bypasses;        // one for each wire, of CPU lanes
  bool polled = false;                // the lanes are a GPU's: they post and cannot call
  int streams = 1;                    // of a channel
  std::atomic<bool> closing{false};   // the owner is gone
  std::vector<ProxyEngine*> engines;  // that drive the streams: stream s by engine s modulo count
  std::chrono::steady_clock::time_point deadline{};  // for the sender to connect
  std::unique_ptr<std::atomic<Word>[]> done;       // channels * streams: steps done by each stream
  std::unique_ptr<std::atomic<Word>[]> announced;  // channels: steps whose header has come

  /// After a step of one stream: tells the lanes, when all streams of the channel are that far.
  void publish(int channel, int stream, Word steps);
  /// The first failure of the communicator; nothing if we are leaving anyway.
  void lose(const char* what, int os_code);
  void fail_with(Errc code, std::string what, int os_code = 0);
  bool healthy() const { return status == nullptr || status->ok(); }
};

std::shared_ptr<ProxyTask> make_send_stream(std::shared_ptr<SocketLink> link, int channel,
                                            int stream, Fd socket);
std::shared_ptr<ProxyTask> make_receive_stream(std::shared_ptr<SocketLink> link, int channel,
                                               int stream, std::shared_ptr<Mailbox> mailbox);

}  // namespace ccl::detail
