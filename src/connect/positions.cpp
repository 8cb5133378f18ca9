#include <ccl/detail/wire/peers_of.hpp>

#include <algorithm>
#include <set>
#include <vector>

namespace ccl::detail {
namespace {
/// An algorithm of the program's may name any number.
Result<void> check_named(const Links& links, const PeersOfSeats& seats) {
  const auto check = [&](const std::vector<Links::Peer>& peers, const char* way) -> Result<void> {
    for (const Links::Peer& peer : peers) {
      const bool there = peer.rank >= 0 && peer.rank < links.comm().ranks();
      if (!there) return fail(links.no_such_peer(peer.rank, way));
    }
    return {};
  };
  CCL_CHECK(check(seats.in, "from"));
  return check(seats.out, "to");
}

/// What a launch would do with shares that there are not, nothing would stop, nor on a GPU with
/// wires: once is enough, as all launches name the same.
Result<void> check_run(Links& links, const SeatsOf& of, PeersOfSeats seats, int root) {
  if (of.rehearse == nullptr) return {};
  const Plan& plan = links.plan();
  const int ranks = links.comm().ranks(), window = plan.slot_count / plan.chunk_steps;
  constexpr int most_roots = 64;  // a root more is a run more
  const bool any_root = of.rooted && !of.by_root;
  // Never empty: that they are looked at, their address says.
  const auto named = [](const std::vector<Links::Peer>& peers, int channel) {
    std::vector<int> ranks{-1};
    for (const Links::Peer& peer : peers) {
      if (peer.channel == channel) ranks.push_back(peer.rank);
    }
    return ranks;
  };
  Rehearsed found;
  for (int n = 0; n < (any_root ? std::min(ranks, most_roots) : 1); ++n) {
    seats.root_rank = any_root ? n : root;
    links.seats_for(seats.root_rank, of.double_tree);
    for (int c = 0; c < plan.channels && found.wrong == Rehearsed::nothing; ++c) {
      seats.channel = c;
      const std::vector<int> from = named(seats.in, c), to = named(seats.out, c);
      of.rehearse(
          {seats.rank(), ranks, seats.root_rank, c, plan.channels, std::max(window, 1),
           seats.ring(), seats.tree(), from.data(), to.data(), int(from.size()), int(to.size())},
          found);
    }
  }
  links.seats_for(root, of.double_tree);
  if (found.wrong == Rehearsed::nothing) return {};
  const bool wire = found.wrong == Rehearsed::wire_from || found.wrong == Rehearsed::wire_to;
  if (wire) return fail(links.no_wire(found.given, found.wrong == Rehearsed::wire_to));
  return fail(links.no_such_share(found));
}
}  // namespace

Result<void> connect_seats(Links& links, const SeatsOf& of, int root, const Result<void>& so_far) {
  links.seats_for(root, of.double_tree);
  if (links.connected(root)) return {};
  PeersOfSeats seats{links, root};
  for (int c = 0; c < links.plan().channels; ++c) {
    seats.channel = c;
    of.peers(seats);
  }
  Result<void> ready = so_far;
  if (ready) ready = check_named(links, seats);
  if (ready) ready = check_run(links, of, seats, root);
  if (!ready) seats.in.clear(), seats.out.clear();  // the others are told all the same
  if (of.by_root) {
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
  CCL_CHECK(links.connect(seats.in, seats.out, ready));
  links.set_connected(root);
  return {};
}

}  // namespace ccl::detail
