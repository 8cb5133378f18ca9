#pragma once

#include <ccl/detail/runtime/bootstrap.hpp>

#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "net/conn.hpp"
#include "net/rendezvous.hpp"

namespace ccl::detail {

/// Creation of a bootstrap's ring: by the roots of its ids, or from ranks that are known.
class RingFormation {
 public:
  explicit RingFormation(Bootstrap::Core& core) : core_(core) {}

  /// Forms the ring by the roots. Collective.
  Result<void> form(std::span<const net::IdContent> roots);
  /// Listens at `where` for sockets of peers.
  Result<void> open_acceptor(const net::Address& where);
  /// Connects to `next` and blocks until the previous rank has connected.
  Result<void> form_ring(const net::Member& next);
  /// Blocks until the previous rank has connected. Then it handles the frames of `defer`.
  Result<void> wait_for_prev(net::Lock& lock, const char* what);
  /// Ends the use of the roots' secrets after a creation that has succeeded.
  void set_joined();
  /// After a failure, lets ranks that still connect to this process's root receive the error.
  /// Blocks at most 1 s.
  void wait_for_late_ranks();

  /// Handles `FrameKind::next`, `progress` and `release` from a root.
  void on_root_frame(const net::Lock&, const net::FrameHeader& h, net::Bytes payload);
  /// Returns the error of a root's closed socket, or nothing if the ring no longer needs the root.
  std::optional<Error> root_lost(const net::Lock&, int os_code) const;
  /// Returns the error for a root that does not answer within 2 s, if any.
  std::optional<Error> stopped_root(net::Lock& lock) const;
  /// Fails the roots of this process.
  void fail_local_roots(const net::Lock&, const Error& error);
  /// Returns why no more such frames may be kept, or an empty text.
  std::string wrong_early_frame(const net::Lock&) const;
  /// Keeps a frame of the ring that arrives earlier than the ring is complete.
  void defer(const net::Lock&, const net::FrameHeader& h, net::Bytes payload);

  /// Sets `rank` as the only missing rank.
  void expect(const net::Lock&, int rank) { missing_ = {rank}; }
  void expect_none(const net::Lock&) { missing_.clear(); }
  /// Returns the ranks that have not joined, as far as this rank knows.
  std::vector<int> missing(const net::Lock&) const { return {missing_.begin(), missing_.end()}; }
  /// Returns the deadline of a wait that begins now. It is longer for a rank that knows of no
  /// missing rank, so that a rank that knows one reports it first.
  net::Deadline deadline(const net::Lock&) const;

 private:
  Result<void> join_root(const net::IdContent& id, int root, int roots);
  Result<net::Member> next_from_root();
  Result<void> exchange_members();
  void on_progress(const net::Lock&, const net::FrameHeader& h, net::Bytes payload);

  Bootstrap::Core& core_;
  std::vector<net::IdContent> roots_;              // some may be in this process
  std::vector<std::vector<int>> missing_by_root_;  // as each root has reported
  std::set<int> missing_;                          // of all roots
  int root_rank_ = -1;                             // rank of the root's process, if known
  bool formed_ = false;                            // both neighbors are connected
  bool released_ = false;                          // a root has seen that its ring is complete
  bool joined_ = false;
  std::vector<std::pair<net::FrameHeader, std::vector<std::byte>>> early_frames_;
  std::size_t early_bytes_ = 0;  // of them
};

}  // namespace ccl::detail
