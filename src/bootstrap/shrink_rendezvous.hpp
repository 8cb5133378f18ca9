#pragma once

#include <ccl/detail/runtime/bootstrap.hpp>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bootstrap/members/peer_sockets.hpp"
#include "net/crypto/sha256.hpp"

namespace ccl::detail {

/// Rendezvous of the surviving ranks in a shrink. The ring of all ranks has gaps where ranks have
/// died, so the surviving ranks form a ring of their own. Each one connects to the acceptor of the
/// next one, which is open while its bootstrap exists, also after a failure.
///
/// The core of all ranks keeps a connection that arrives earlier than its own shrink. The core of
/// the surviving ranks, `rest`, takes it when this rank shrinks.
class ShrinkRendezvous {
 public:
  explicit ShrinkRendezvous(Bootstrap::Core& core) : core_(core) {}

  /// Mutex that a thread must hold during a shrink of this bootstrap.
  std::mutex& mutex() { return shrinking_; }
  /// Forms the ring of this core, the surviving ranks of `all`.
  Result<void> form_ring_in(Bootstrap::Core& all);
  /// Ends the shrink that `form_ring_in` has begun on this core.
  void end(const Result<void>& result);
  /// Aborts a shrink that has begun on this core.
  void stop(const Error& error);
  /// Fails attempt `number`, which this rank cannot begin, on all ranks that wait for this one.
  /// Does nothing if it has begun or failed.
  void miss(Errc why, std::uint64_t number) noexcept;
  std::uint64_t attempts(const net::Lock&) const { return attempts_; }

  /// Handles a connection whose hello is a `ShrinkHello`. `of_caller` gets the connection, which
  /// the caller closes if an exception is thrown: its rank would wait for this one.
  void on_hello(const net::Lock&, net::Accepted one, const net::ShrinkHello& hello,
                std::shared_ptr<net::Conn>& of_caller);
  /// Raises the number of failed attempts to that of another rank.
  void raise_attempts(const net::Lock&, std::uint64_t attempts);
  /// Sends all pending ranks the error that this rank has left.
  void reject_pending(const net::Lock&);

 private:
  /// A rank that shrinks and has connected to this one, possibly earlier than this rank's shrink.
  struct PendingPeer {
    net::Member who;
    net::Digest excluded;
    std::string excluded_text;  // the excluded ranks, as text
    std::uint64_t number;
    net::Clock::time_point at;
    std::weak_ptr<Bootstrap::Core> taken_by;
    // Events from earlier than that.
    std::vector<std::pair<net::FrameHeader, std::vector<std::byte>>> frames;
    std::size_t bytes = 0;  // of `frames`
    std::optional<int> closed;
    bool failed() const;
  };
  struct PendingCall {
    std::shared_ptr<PendingPeer> from;
    std::shared_ptr<net::Conn> conn;
  };
  struct AbandonedShrink {
    Error why;
    std::uint64_t number;
  };
  struct Current {
    std::shared_ptr<Bootstrap::Core> rest;  // null: no shrink has begun
    net::Digest excluded{};
    std::string excluded_text;
    net::Clock::time_point since;
    std::uint64_t number = 0;
  };

  void begin(const net::Lock&, const std::shared_ptr<Bootstrap::Core>& rest);
  Result<std::shared_ptr<net::Conn>> connect(int peer, PeerRole role, net::Bytes hello);
  Result<PendingCall> keep(const net::Lock&, net::Accepted one, const net::ShrinkHello& hello);
  void take_prev(const net::Lock&);
  bool is_old(const net::Lock&, const PendingPeer& from) const;
  bool send_abandoned(const net::Lock&, const PendingCall& call);
  const AbandonedShrink* abandoned(const PendingPeer& from) const;
  bool check_pending(const net::Lock&, const std::weak_ptr<Bootstrap::Core>& of);

  Bootstrap::Core& core_;
  std::mutex shrinking_;
  Current current_;
  std::map<int, PendingCall> pending_;                // the latest of each rank, until taken
  std::map<net::Digest, AbandonedShrink> abandoned_;  // the latest attempt, by excluded ranks
  std::optional<AbandonedShrink> missed_;             // the latest, whatever ranks it excludes
  std::uint64_t attempts_ = 0;                        // that have failed, on any rank
  std::vector<PendingCall> watchers_;                 // ranks that wait for this one
};

}  // namespace ccl::detail
