#pragma once

#include <ccl/detail/compose/checks.hpp>
#include <ccl/detail/wire/dry_run.hpp>
#include <ccl/detail/runtime/connections.hpp>

#include <vector>

namespace ccl::detail {

/// Collects the peers that an algorithm's seats name, as `Algo::peers` is given it.
struct PeersOfSeats {
  const Links& links;
  int root_rank;
  int channel = 0;
  std::vector<Links::Peer> in{}, out{};
  int rank() const { return links.comm().rank(); }
  int ranks() const { return links.comm().ranks(); }
  int root() const { return root_rank; }
  RingSeat ring() const { return links.ring(channel); }
  TreeSeat tree() const { return links.tree(channel, root_rank); }
  void from(int peer) { in.push_back({peer, channel}); }
  void to(int peer) { out.push_back({peer, channel}); }
};

/// What an algorithm's seats are like.
struct SeatsOf {
  void (*peers)(PeersOfSeats& seats);
  bool double_tree;  // rather than one
  bool by_root;      // see `wires_by_root`
  bool rooted;
  /// Of an algorithm of the program's own, which may name shares that there are not; else null.
  void (*rehearse)(const RehearsalSeat& seat, Rehearsed& found);
};
template <class Op, class Algo>
constexpr auto rehearsal_of() -> decltype(SeatsOf::rehearse) {
  if constexpr (!is_validated<Algo> && !Exchanges<Op, Algo>) return &rehearse<Op, Algo>;
  return nullptr;
}
template <class Op, class Algo>
constexpr SeatsOf seats_of() {
  constexpr bool one_tree = [] {
    if constexpr (requires { Algo::one_tree; }) return Algo::one_tree;
    return false;
  }();
  return {[](PeersOfSeats& seats) { Algo::peers(seats); }, !Op::rooted && !one_tree,
          wires_by_root<Op, Algo>, Op::rooted, rehearsal_of<Op, Algo>()};
}

/// Takes the seats of a launch with this root, and connects the peers that they name if they are
/// not connected yet. Collective then; `so_far` as for `Links::connect`.
Result<void> connect_seats(Links& links, const SeatsOf& of, int root,
                           const Result<void>& so_far = {});

/// Before a launch: connects what is only connected when it is first wanted.
template <class Op, class Algo>
Result<void> connect_wanted(Links& links, int root) {
  constexpr SeatsOf seats = seats_of<Op, Algo>();
  if constexpr (seats.by_root) return connect_seats(links, seats, root);
  return links.connected(0) ? Result<void>{} : connect_seats(links, seats, 0);
}

}  // namespace ccl::detail
