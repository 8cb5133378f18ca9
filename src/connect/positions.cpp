#include <ccl/detail/wire/peers_of.hpp>

#include <algorithm>
#include <set>
#include <vector>

namespace ccl::detail {
namespace {
/// An algorithm of the program's may name any number.
Result<void> check_named(const Connections& connections, const PeersOfPositions& positions) {
  const auto check = [&](const std::vector<Connections::Peer>& peers,
                         const char* way) -> Result<void> {
    for (const Connections::Peer& peer : peers) {
      const bool there = peer.rank >= 0 && peer.rank < connections.comm().ranks();
      if (!there) return fail(connections.no_such_peer(peer.rank, way));
    }
    return {};
  };
  CCL_CHECK(check(positions.in, "from"));
  return check(positions.out, "to");
}

/// What a launch would do with shares that there are not, nothing would stop, nor on a GPU with
/// wires: once is enough, as all launches name the same.
Result<void> check_run(Connections& connections, const PositionsOf& of, PeersOfPositions positions,
                       int root) {
  if (of.dry_run == nullptr) return {};
  const Plan& plan = connections.plan();
  const int ranks = connections.comm().ranks(), window = plan.slot_count / plan.chunk_steps;
  constexpr int max_roots = 64;  // a root more is a run more
  const bool any_root = of.rooted && !of.by_root;
  // Never empty: that they are looked at, their address says.
  const auto named = [](const std::vector<Connections::Peer>& peers, int channel) {
    std::vector<int> ranks{-1};
    for (const Connections::Peer& peer : peers) {
      if (peer.channel == channel) ranks.push_back(peer.rank);
    }
    return ranks;
  };
  DryRunResult found;
  for (int n = 0; n < (any_root ? std::min(ranks, max_roots) : 1); ++n) {
    positions.root_rank = any_root ? n : root;
    connections.positions_for(positions.root_rank, of.double_tree);
    for (int c = 0; c < plan.channels && found.wrong == DryRunResult::nothing; ++c) {
      positions.channel = c;
      const std::vector<int> from = named(positions.in, c), to = named(positions.out, c);
      of.dry_run({positions.rank(), ranks, positions.root_rank, c, plan.channels,
                  std::max(window, 1), positions.ring(), positions.tree(), from.data(), to.data(),
                  int(from.size()), int(to.size())},
                 found);
    }
  }
  connections.positions_for(root, of.double_tree);
  if (found.wrong == DryRunResult::nothing) return {};
  const bool wire = found.wrong == DryRunResult::wire_from || found.wrong == DryRunResult::wire_to;
  if (wire) return fail(connections.no_wire(found.given, found.wrong == DryRunResult::wire_to));
  return fail(connections.no_such_share(found));
}
}  // namespace

Result<void> connect_positions(Connections& connections, const PositionsOf& of, int root,
                               const Result<void>& so_far) {
  connections.positions_for(root, of.double_tree);
  if (connections.connected(root)) return {};
  PeersOfPositions positions{connections, root};
  for (int c = 0; c < connections.plan().channels; ++c) {
    positions.channel = c;
    of.peers(positions);
  }
  Result<void> ready = so_far;
  if (ready) ready = check_named(connections, positions);
  if (ready) ready = check_run(connections, of, positions, root);
  if (!ready) positions.in.clear(), positions.out.clear();  // the others are told all the same
  if (of.by_root) {
    // Another root may want other channels between the same ranks.
    for (auto* peers : {&positions.in, &positions.out}) {
      std::set<int> ranks;
      for (const auto& peer : *peers) ranks.insert(peer.rank);
      peers->clear();
      for (const int rank : ranks) {
        for (int c = 0; c < connections.plan().channels; ++c) peers->push_back({rank, c});
      }
    }
  }
  CCL_CHECK(connections.connect(positions.in, positions.out, ready));
  connections.set_connected(root);
  return {};
}

}  // namespace ccl::detail
