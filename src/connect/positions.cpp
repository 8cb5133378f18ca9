#include <ccl/detail/launch/errors.hpp>
#include <ccl/detail/runtime/positions.hpp>
#include <ccl/detail/wire/peers_of.hpp>

#include <algorithm>
#include <map>
#include <vector>

#include "comm/edges/reducing_network.hpp"
#include "comm/peer_waits.hpp"
#include "comm/state.hpp"

namespace ccl::detail {

PositionTable PositionTable::make(const Communicator& comm, int channels) {
  PositionTable table;
  table.channels = channels;
  const int ranks = comm.ranks();
  if (ranks == 1) {  // no neighbors
    table.rings.resize(std::size_t(channels));
    return table;
  }
  const CommState& state = *Access::state(comm);
  const topo::Arrangement& arrangement = state.identity.arrangement();
  const int ways = std::min(arrangement.ring_count(), channels);
  std::vector<int> places;
  table.order.reserve(std::size_t(ways) * std::size_t(ranks));
  for (int way = 0; way < ways; ++way) {
    const std::vector<int>& ring = arrangement.ring(way);
    places.push_back(int(std::find(ring.begin(), ring.end(), comm.rank()) - ring.begin()));
    table.order.insert(table.order.end(), ring.begin(), ring.end());
  }
  for (int c = 0; c < channels; ++c) {
    table.rings.push_back(
        {places[std::size_t(c % ways)], ranks, table.order.data() + c % ways * ranks});
  }
  table.of_all_roots = state.device.gpu != nullptr;
  table.trees.resize(std::size_t(channels));
  table.connected.resize(std::size_t(ranks));
  return table;
}

void PositionTable::set_root(const Communicator& comm, int root, bool double_tree) {
  const topo::Arrangement& arrangement = Access::state(comm)->identity.arrangement();
  const auto position = [&](int of_root, int c) {
    return arrangement.tree(comm.rank(), double_tree ? -1 : of_root, c);
  };
  if (!of_all_roots) {
    for (int c = 0; c < channels; ++c) trees[std::size_t(c)] = position(root, c);
    return;
  }
  const auto whole = std::size_t(channels) * std::size_t(comm.ranks());
  if (trees.size() >= whole) return;
  trees.resize(whole);
  for (int r = 0; r < comm.ranks(); ++r) {
    for (int c = 0; c < channels; ++c) trees[std::size_t(r * channels + c)] = position(r, c);
  }
}

void PositionTable::set_hosts(const Communicator& comm, const ReducingNetwork& network, int heads) {
  const topo::Arrangement& arrangement = Access::state(comm)->identity.arrangement();
  const std::vector<int>& here = network.hosts[std::size_t(network.host_of(comm.rank()))];
  const auto ranks = std::ptrdiff_t(here.size());
  host_order.clear();
  for (int c = 0; c < channels; ++c) {
    std::vector<int> order = here;
    if (heads == 1) {  // along the ring of the channel, from its head on
      order.clear();
      for (const int rank : arrangement.ring(c)) {
        if (std::find(here.begin(), here.end(), rank) != here.end()) order.push_back(rank);
      }
      const int head = here[std::size_t(c % network.heads)];
      std::rotate(order.begin(), std::find(order.begin(), order.end(), head), order.end());
    }
    host_order.insert(host_order.end(), order.begin(), order.end());
  }
  const int used = std::min(heads, network.heads);
  all_heads.clear();
  for (const std::vector<int>& host : network.hosts) {
    if (heads > 1) all_heads.insert(all_heads.end(), host.begin(), host.begin() + used);
  }
  hosts.clear();
  for (int c = 0; c < channels; ++c) {
    const auto begin = host_order.begin() + ranks * c;
    hosts.push_back({int(std::find(begin, begin + ranks, comm.rank()) - begin), int(ranks), used,
                     &*begin, network.host_of(comm.rank()), int(network.hosts.size()),
                     all_heads.empty() ? nullptr : all_heads.data()});
  }
}

namespace {
/// Fails if the positions name a rank outside the communicator. A program's own algorithm may name
/// any number.
Result<void> check_named(const Connections& connections, const PeersOfPositions& positions) {
  const auto check = [&](const std::vector<PeerChannel>& peers, const char* way) -> Result<void> {
    for (const PeerChannel& peer : peers) {
      const bool there = peer.rank >= 0 && peer.rank < connections.comm().ranks();
      if (!there) return fail(no_such_peer(connections, peer.rank, way));
    }
    return {};
  };
  CCL_CHECK(check(positions.in, "from"));
  return check(positions.out, "to");
}

/// Runs the algorithm's steps without data. Fails if they name a share or wire that does not exist,
/// because no launch checks this. One run is enough, because all launches take the same steps.
Result<void> check_run(Connections& connections, const PositionsOf& of, PeersOfPositions positions,
                       int root) {
  if (of.dry_run == nullptr) return {};
  const Plan& plan = connections.plan();
  const int ranks = connections.comm().ranks(), window = plan.slot_count / plan.chunk_steps;
  constexpr int max_roots = 64;  // each root costs a run
  const bool any_root = of.rooted && !of.by_root;
  // Never empty, because the dry run checks peers only if their address is not null.
  const auto named = [](const std::vector<PeerChannel>& peers, int channel) {
    std::vector<int> ranks{-1};
    for (const PeerChannel& peer : peers) {
      if (peer.channel == channel) ranks.push_back(peer.rank);
    }
    return ranks;
  };
  DryRunResult found;
  for (int n = 0; n < (any_root ? std::min(ranks, max_roots) : 1); ++n) {
    positions.root_rank = any_root ? n : root;
    connections.positions().set_root(connections.comm(), positions.root_rank, of.double_tree);
    for (int c = 0; c < plan.channels && found.wrong == DryRunResult::nothing; ++c) {
      positions.channel = c;
      const std::vector<int> from = named(positions.in, c), to = named(positions.out, c);
      of.dry_run({positions.rank(), ranks, positions.root_rank, c, plan.channels,
                  std::max(window, 1), positions.ring(), positions.tree(), from.data(), to.data(),
                  int(from.size()), int(to.size()), positions.host()},
                 found);
    }
  }
  connections.positions().set_root(connections.comm(), root, of.double_tree);
  if (found.wrong == DryRunResult::nothing) return {};
  const bool wire = found.wrong == DryRunResult::wire_from || found.wrong == DryRunResult::wire_to;
  if (wire) return fail(no_wire(connections, found.given, found.wrong == DryRunResult::wire_to));
  const bool share = found.wrong == DryRunResult::shares || found.wrong == DryRunResult::share;
  return fail(share ? no_such_share(connections, found) : no_such_step(connections, found));
}
}  // namespace

Result<void> connect_positions(Connections& connections, const PositionsOf& of, int root,
                               const Result<void>& so_far) {
  connections.positions().set_root(connections.comm(), root, of.double_tree);
  if (connections.positions().connected[std::size_t(root)]) return {};
  CCL_CHECK(check_may_wait());
  PeersOfPositions positions{connections, root};
  for (int c = 0; c < connections.plan().channels; ++c) {
    positions.channel = c;
    of.peers(positions);
  }
  if (!of.double_tree) {
    for (auto* peers : {&positions.in, &positions.out}) {
      for (PeerChannel& peer : *peers) {
        if (peer.use == topo::EdgeUse::tree) peer.use = topo::EdgeUse::rooted_tree;
      }
    }
  }
  Result<void> ready = so_far;
  if (ready) ready = check_named(connections, positions);
  if (ready) ready = check_run(connections, of, positions, root);
  if (!ready) positions.in.clear(), positions.out.clear();  // `connect` sends the error to all
  if (of.by_root) {
    // Another root may need other channels between the same ranks.
    for (auto* peers : {&positions.in, &positions.out}) {
      std::map<int, topo::EdgeUse> ranks;
      for (const auto& peer : *peers) ranks.emplace(peer.rank, peer.use);
      peers->clear();
      for (const auto& [rank, use] : ranks) {
        for (int c = 0; c < connections.plan().channels; ++c) peers->push_back({rank, c, use});
      }
    }
  }
  CCL_CHECK(connections.connect(positions.in, positions.out, ready));
  connections.positions().connected[std::size_t(root)] = true;
  return {};
}

}  // namespace ccl::detail
