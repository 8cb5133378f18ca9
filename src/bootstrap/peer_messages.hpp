#pragma once

#include <ccl/detail/runtime/bootstrap.hpp>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "net/conn.hpp"
#include "net/rendezvous.hpp"

namespace ccl::detail {

/// Lowest tag of messages that the bootstrap itself sends. Tags of its users are lower.
constexpr std::uint64_t own_tags = std::uint64_t{1} << 63;

/// Messages between any two ranks of a bootstrap. All functions may be called on any thread.
class PeerMessages {
 public:
  using Source = Bootstrap::Source;
  explicit PeerMessages(Bootstrap::Core& core) : core_(core) {}

  /// Sends a message. A connection to the peer has the deadline of creation, or ends after
  /// `limit_s` seconds if that is not 0. A slow peer delays only messages to itself.
  Result<void> send(int peer, std::uint64_t tag, const void* data, Index bytes, double limit_s = 0);
  /// Words of the error if no message comes: the call, and the setting that raises the limit.
  struct WaitLabel {
    const char* what = "recv";
    const char* setting = "CCL_TIMEOUT";
  };
  Result<std::vector<std::byte>> recv(int peer, std::uint64_t tag, std::optional<double> limit_s,
                                      const WaitLabel& label);
  std::vector<std::pair<Source, std::vector<std::byte>>> recv_any(std::span<const Source> sources,
                                                                  double limit_s);
  using MessageListener = std::function<void(int peer, std::span<const std::byte> text)>;
  /// Sets the function that takes messages with `tag`; an empty one ends that.
  void set_listener(std::uint64_t tag, MessageListener listener);
  /// Returns the tag of the next collective call that sends messages, the same on all ranks.
  std::uint64_t next_tag() { return own_tags | own_calls_++; }

  /// Handles `FrameKind::message`.
  void on_message(const net::Lock&, const net::FrameHeader& h, net::Bytes payload);

 private:
  /// Returns the connection for messages to `peer` and opens it if needed. It releases the mutex
  /// while it connects.
  Result<std::shared_ptr<net::Conn>> conn_to(net::Lock& lock, int peer, double limit_s);
  /// Returns an open connection for messages to `peer`, or null.
  std::shared_ptr<net::Conn> open_conn(const net::Lock& lock, int peer);
  Result<net::SecureSocket> dial(net::Lock& lock, const net::Member& to,
                                 const net::Deadline& deadline);

  /// Error of a peer whose messages nobody receives, if they are more than fit.
  Result<void> check_unclaimed(const net::Lock&, int peer) const;

  Bootstrap::Core& core_;
  std::set<int> dialed_;  // peers to which a thread opens a connection
  using Queue = std::deque<std::vector<std::byte>>;
  using Inbox = std::map<std::pair<int, std::uint64_t>, Queue>;  // by peer and tag
  /// Keeps a message until it is received.
  void keep(const net::Lock&, int peer, std::uint64_t tag, net::Bytes payload);
  /// Takes the first message of a queue, and the queue with its last one.
  std::vector<std::byte> take(const net::Lock&, Inbox::iterator queue);

  Inbox inbox_;
  std::map<int, size_t> unclaimed_bytes_;  // memory of inbox_, by peer
  std::uint64_t own_calls_ = 0;
  std::map<std::uint64_t, MessageListener> listeners_;  // by tag of the messages that they take
};

}  // namespace ccl::detail
