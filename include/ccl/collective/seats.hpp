#pragma once

#include <ccl/collective/checks.hpp>
#include <ccl/links.hpp>

#include <set>
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

/// Takes the seats of a launch with this root, and connects the peers that they name if they are
/// not connected yet. Collective then; `so_far` as for `Links::connect`.
template <class Op, class Algo>
Result<void> connect_seats(Links& links, int root, const Result<void>& so_far = {}) {
  constexpr bool one_tree = [] {
    if constexpr (requires { Algo::one_tree; }) return Algo::one_tree;
    return false;
  }();
  links.seats_for(root, !Op::rooted && !one_tree);
  if (links.connected(root)) return {};
  PeersOfSeats seats{links, root};
  for (int c = 0; c < links.plan().channels; ++c) {
    seats.channel = c;
    Algo::peers(seats);
  }
  if constexpr (wires_by_root<Op, Algo>) {
    // Another root may want other channels between the same ranks.
    for (auto* peers : {&seats.in, &seats.out}) {
      std::set<int> ranks;
      for (const auto& peer : *peers) ranks.insert(peer.rank);
      peers->clear();
      for (const int rank : ranks) {
        for (int c = 0; c < links.plan().channels; ++c) peers->push_back({rank, c});
      }
    }
  }
  CCL_CHECK(links.connect(seats.in, seats.out, so_far));
  links.set_connected(root);
  return {};
}

/// Before a launch: connects what is only connected when it is first wanted.
template <class Op, class Algo>
Result<void> connect_wanted(Links& links, int root) {
  if constexpr (wires_by_root<Op, Algo>) return connect_seats<Op, Algo>(links, root);
  return links.connected(0) ? Result<void>{} : connect_seats<Op, Algo>(links, 0);
}

}  // namespace ccl::detail
