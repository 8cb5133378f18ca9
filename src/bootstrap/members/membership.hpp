#pragma once

#include <ccl/detail/runtime/bootstrap.hpp>

#include <string>
#include <vector>

#include "net/rendezvous.hpp"

namespace ccl::detail {

/// Ranks of a bootstrap and their positions in its ring. The engine's mutex guards it from the time
/// at which other threads can see it.
struct Membership {
  Membership(int rank, int ranks, const net::Secret& secret, double deadline_s);
  /// The surviving ranks of `all` in a shrink. They keep their numbers.
  Membership(const Membership& all, std::vector<int> surviving, double deadline_s);

  const int rank, ranks;
  const net::Secret secret;
  const double deadline_s;
  int tree_ranks = BootstrapOptions{}.tree_ranks;
  bool calls_end = false;        // gathers with a limit of a call have one on all ranks
  const bool survivors = false;  // sockets lead to the acceptors of another core's ranks
  net::Member me;
  std::vector<net::Member> members;
  std::vector<RankPlace> places;
  std::vector<int> ring;             // all ranks, or the surviving ranks of a shrink
  std::vector<int> ranks_in_parent;  // of a child: the parent's number of each rank

  /// Fails with `Errc::mismatch` if `member`, as rank `rank` describes itself, cannot be that rank.
  Result<void> check_member(int rank, const net::Member& member) const;
  void set_members(const net::Lock&, std::vector<net::Member> all);
  net::Deadline deadline() const { return net::Deadline::after(deadline_s); }
  /// Address at which a child may listen: the address of this rank with any port.
  net::Address listening_at() const;

  int in_ring() const { return int(ring.size()); }
  /// Position of `r` in the ring, or -1.
  int position_of(int r) const;
  int next_peer() const { return ring[size_t((position_of(rank) + 1) % in_ring())]; }
  int prev_peer() const { return ring[size_t((position_of(rank) + in_ring() - 1) % in_ring())]; }
  int forward_steps() const { return in_ring() / 2; }
  int backward_steps() const { return (in_ring() - 1) / 2; }

  /// Adds this rank and its host to an error that names none.
  void complete(Error& e) const;
  Result<void> failed(Errc code, std::string what) const;
  Result<void> failed_at(int peer, Error e) const;
  /// Converts the peer of an error between the numbers of the parent and of this child.
  Error from_parent(Error error) const;
  Error in_parent(Error error) const;
};

}  // namespace ccl::detail
