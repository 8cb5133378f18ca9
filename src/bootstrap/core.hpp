#pragma once

#include <ccl/detail/runtime/bootstrap.hpp>

#include <memory>
#include <vector>

#include "bootstrap/members/membership.hpp"
#include "bootstrap/members/peer_sockets.hpp"
#include "bootstrap/peer_messages.hpp"
#include "bootstrap/progress_wait.hpp"
#include "bootstrap/ring_formation.hpp"
#include "bootstrap/ring_gather.hpp"
#include "bootstrap/shrink_agreement.hpp"
#include "bootstrap/shrink_rendezvous.hpp"
#include "bootstrap/shutdown.hpp"
#include "bootstrap/status_exchange.hpp"
#include "bootstrap/staying_ranks.hpp"
#include "net/auth.hpp"
#include "net/conn.hpp"

namespace ccl::detail {

/// Returns the limit of each wait of a bootstrap with these options, in seconds.
Result<double> deadline_of(const BootstrapOptions& options);

/// Parts of a bootstrap, and the dispatch of its connections and frames to them. The engine's mutex
/// guards all parts, except what joining sets before other threads can see it.
class Bootstrap::Core : public std::enable_shared_from_this<Core> {
 public:
  Core(int rank, int ranks, const net::Secret& secret, double deadline_s, Status* status);
  /// The surviving ranks of `all` in a shrink. They keep their numbers.
  Core(const Core& all, std::vector<int> surviving, double deadline_s);

  /// Handles an authenticated connection to this rank's acceptor.
  void accept(const net::Lock&, net::Accepted one);
  /// Starts to read frames from a socket. Sends this rank's error, if any, to its other end.
  Result<std::shared_ptr<net::Conn>> start(const net::Lock&, net::SecureSocket socket,
                                           PeerRole role, const net::Member& peer);
  /// Dispatches a frame of `sender` on `conn`. Rejects the connection if the frame does not fit.
  void take_frame(const net::Lock&, net::Conn& conn, PeerRole role, int sender,
                  const net::FrameHeader& h, net::Bytes payload);

  Membership& membership() { return membership_; }
  PeerSockets& sockets() { return sockets_; }
  ProgressWait& waits() { return waits_; }
  Shutdown& shutdown() { return shutdown_; }
  RingFormation& formation() { return formation_; }
  RingGather& gather() { return gather_; }
  PeerMessages& messages() { return messages_; }
  StatusExchange& statuses() { return statuses_; }
  StayingRanks& staying() { return staying_; }
  ShrinkRendezvous& shrink() { return shrink_; }
  ShrinkAgreement& agreement() { return agreement_; }
  Status& status() const { return shutdown_.status(); }

 private:
  /// Handles one caller. `of_caller` gets its connection.
  void take_caller(const net::Lock&, net::Accepted one, std::shared_ptr<net::Conn>& of_caller);
  void on_frame(const net::Lock&, const net::FrameHeader& h, net::Bytes payload);

  Membership membership_;
  PeerSockets sockets_;
  ProgressWait waits_{*this};
  Shutdown shutdown_;
  RingFormation formation_{*this};
  RingGather gather_{*this};
  PeerMessages messages_{*this};
  StatusExchange statuses_{*this};
  StayingRanks staying_{*this};
  ShrinkRendezvous shrink_{*this};
  ShrinkAgreement agreement_{*this};
};

}  // namespace ccl::detail
