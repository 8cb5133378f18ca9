#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "net/auth.hpp"
#include "net/conn.hpp"
#include "net/rendezvous.hpp"

namespace ccl::detail {

/// Other end of a socket. A `caller` is a peer that has connected to this rank.
enum class PeerRole { next, prev, root, peer, caller };

/// Connections that one rank may have to another one at a time. A rank opens one for messages, one
/// to the next rank that stays, and some to ask for statuses.
inline constexpr std::size_t max_from_peer = 8;

/// Sockets of a bootstrap. The engine's mutex guards them.
struct PeerSockets {
  std::shared_ptr<net::Acceptor> acceptor;
  std::shared_ptr<net::Conn> next, prev;
  std::optional<net::Member> next_member, prev_member;  // known earlier than their sockets
  std::vector<std::shared_ptr<net::Conn>> roots;        // until the ring of all ranks is complete
  std::multimap<int, std::shared_ptr<net::Conn>> accepted;  // from peers, by peer
  std::map<int, std::shared_ptr<net::Conn>> in;             // the latest of `accepted`, by peer
  std::map<int, std::shared_ptr<net::Conn>> out;            // for messages to a peer
  std::vector<std::shared_ptr<net::Conn>> dialed;           // opened to request a status

  /// True if both neighbors are connected.
  bool has_ring(const net::Lock&) const { return next && prev; }
  void set_next(const net::Lock&, std::shared_ptr<net::Conn> conn, const net::Member& member);
  void set_prev(const net::Lock&, std::shared_ptr<net::Conn> conn, const net::Member& member);
  /// Drops connections from `peer` that have ended. Returns the number of those that have not.
  std::size_t count_accepted(const net::Lock&, int peer);
  /// Calls `f` once for each connection.
  void for_each(const net::Lock&, const std::function<void(net::Conn&)>& f) const;
};

}  // namespace ccl::detail
