#include <ccl/topo/connect.hpp>

#include <fmt/format.h>

#include <algorithm>

namespace ccl::topo {

BinaryPlace binary_tree(int node, int count) {
  BinaryPlace place;
  int bit = 1;
  while (bit < count && (bit & node) == 0) bit <<= 1;
  if (node == 0) {
    place.child[1] = count > 1 ? bit >> 1 : -1;
    return place;
  }
  place.parent = (node ^ bit) | (bit << 1);
  if (place.parent >= count) place.parent = node ^ bit;
  place.as_child = node < place.parent ? 0 : 1;
  int reach = bit >> 1;
  if (reach == 0) return place;
  place.child[0] = node - reach;
  while (reach > 0 && node + reach >= count) reach >>= 1;
  place.child[1] = reach > 0 ? node + reach : -1;
  return place;
}

BinaryPlace binary_twin(int node, int count) {
  const bool mirrored = count % 2 == 0;
  const auto mirror = [&](int n) { return mirrored ? count - 1 - n : (n - 1 + count) % count; };
  const auto back = [&](int n) {
    if (n < 0) return -1;
    return mirrored ? count - 1 - n : (n + 1) % count;
  };
  BinaryPlace place = binary_tree(mirror(node), count);
  place.parent = back(place.parent);
  for (int& child : place.child) child = back(child);
  return place;
}

std::vector<MachineChannels> replicate(const ChannelGraph& ring, const ChannelGraph& tree,
                                       int count) {
  std::vector<MachineChannels> machines(count);
  const int each = ring.channels.empty() ? 0 : static_cast<int>(ring.channels[0].ranks.size());
  for (int m = 0; m < count; ++m) {
    machines[m].ring = ring.channels;
    machines[m].tree = tree.channels;
    machines[m].tree_pattern = tree.pattern;
    for (auto* orders : {&machines[m].ring, &machines[m].tree}) {
      for (ChannelOrder& order : *orders) {
        for (int& rank : order.ranks) rank += m * each;
      }
    }
  }
  return machines;
}

ChannelGraph align(const ChannelGraph& mine, const std::vector<ChannelGraph>& all) {
  ChannelGraph agreed = mine;
  for (const ChannelGraph& other : all) {
    if (other.count() < agreed.count()) agreed.channels.resize(other.channels.size());
    agreed.bw_intra = std::min(agreed.bw_intra, other.bw_intra);
    agreed.bw_inter = std::min(agreed.bw_inter, other.bw_inter);
    agreed.type_intra = std::max(agreed.type_intra, other.type_intra);
    agreed.type_inter = std::max(agreed.type_inter, other.type_inter);
    agreed.same_channels = agreed.same_channels && other.same_channels;
    agreed.cross_nic = std::max(agreed.cross_nic, other.cross_nic);
    // All ranks can build the simpler trees.
    agreed.pattern =
        agreed.pattern == Pattern::ring ? agreed.pattern : std::max(agreed.pattern, other.pattern);
  }
  return agreed;
}

int copies(const ChannelGraph& ring, int machines, int min_sm) {
  return min_sm >= 90 && machines > 1 && ring.bw_intra > 45 && ring.count() * 2 < 16 ? 2 : 1;
}

namespace {

Result<void> check_ranks(const MachineChannels& machine, int m, int ranks) {
  for (const auto* orders : {&machine.ring, &machine.tree}) {
    for (const ChannelOrder& order : *orders) {
      for (const int rank : order.ranks) {
        if (rank < 0 || rank >= ranks) {
          return fail(Errc::invalid_argument,
                      fmt::format("machine {} has rank {} of {} (graphs of another communicator?); "
                                  "search anew",
                                  m, rank, ranks));
        }
      }
      if (order.ranks.empty()) {
        return fail(Errc::invalid_argument,
                    fmt::format("machine {} has a channel without ranks (broken graph file?); "
                                "search anew",
                                m));
      }
    }
  }
  return {};
}

/// Returns an error unless all machines have as many channels as machine 0.
Result<void> check_machines(const std::vector<MachineChannels>& machines, int ranks) {
  const int count = static_cast<int>(machines.size());
  if (count == 0 || ranks <= 0) {
    return fail(Errc::invalid_argument, "no machines to join (0 ranks); give at least one");
  }
  const std::size_t base = machines[0].ring.size();
  for (int m = 0; m < count; ++m) {
    if (machines[m].ring.size() != base || machines[m].tree.size() != base) {
      return fail(
          Errc::mismatch,
          fmt::format("machine {} has {} ring and {} tree channels, machine 0 has {} (graphs "
                      "were not aligned); align them first",
                      m, machines[m].ring.size(), machines[m].tree.size(), base));
    }
    CCL_CHECK(check_ranks(machines[m], m, ranks));
  }
  return {};
}

/// Joins the machines' rings of channel `c` to one that begins at rank 0.
Result<std::vector<int>> join_ring(const std::vector<MachineChannels>& machines, int ranks,
                                   std::size_t c, int cross_nic) {
  std::vector<int> ring;
  ring.reserve(static_cast<std::size_t>(ranks));
  for (std::size_t m = 0; m < machines.size(); ++m) {
    const std::vector<ChannelOrder>& orders = machines[m].ring;
    // If channels enter by one NIC and leave by another, every other machine swaps pairs of
    // channels. Each NIC then connects to NICs of its own rail.
    const bool swap = cross_nic == 2 && m % 2 == 1 && orders.size() % 2 == 0;
    const std::vector<int>& order = orders[swap ? c ^ 1U : c].ranks;
    ring.insert(ring.end(), order.begin(), order.end());
  }
  if (static_cast<int>(ring.size()) != ranks) {
    return fail(Errc::mismatch, fmt::format("ring {} has {} of {} ranks (a machine is missing or "
                                            "brings others' ranks); gather all graphs",
                                            c, ring.size(), ranks));
  }
  const auto start = std::find(ring.begin(), ring.end(), 0);
  if (start != ring.end()) std::rotate(ring.begin(), start, ring.end());
  return ring;
}

/// Side of a machine's tree channel that connects to another machine.
enum class TreePort { parent, first_child, second_child };

/// Rank of a machine that connects to its parent machine or to a child machine in channel `c`.
int rank_at(const MachineChannels& machine, std::size_t c, TreePort port) {
  const std::vector<int>& chain = machine.tree[c].ranks;
  const bool second = port == TreePort::first_child    ? machine.tree_pattern != Pattern::tree
                      : port == TreePort::second_child ? machine.tree_pattern == Pattern::split_tree
                                                       : false;
  return chain[second && chain.size() > 1 ? 1 : 0];
}

/// Links every machine's chain of ranks; machines are not connected to each other.
std::vector<TreeLinks> link_chains(const std::vector<MachineChannels>& machines, int ranks,
                                   std::size_t c) {
  std::vector<TreeLinks> tree(static_cast<std::size_t>(ranks));
  for (const MachineChannels& machine : machines) {
    const std::vector<int>& chain = machine.tree[c].ranks;
    for (std::size_t i = 0; i < chain.size(); ++i) {
      if (i > 0) tree[chain[i]].up = chain[i - 1];
      if (i + 1 < chain.size()) tree[chain[i]].down[0] = chain[i + 1];
    }
  }
  return tree;
}

/// Connects machine `m` of channel `c` to its parent and children by `place`.
void connect_machine(std::vector<TreeLinks>& tree, const std::vector<MachineChannels>& machines,
                     std::size_t c, int m, const BinaryPlace& place) {
  const auto child_port = [](int child) {
    return child == 0 ? TreePort::first_child : TreePort::second_child;
  };
  if (place.parent >= 0) {
    tree[rank_at(machines[m], c, TreePort::parent)].up =
        rank_at(machines[place.parent], c, child_port(place.as_child));
  }
  for (int child = 0; child < 2; ++child) {
    if (place.child[child] < 0) continue;
    auto& down = tree[rank_at(machines[m], c, child_port(child))].down;
    *std::find(down.begin(), down.end() - 1, -1) =
        rank_at(machines[place.child[child]], c, TreePort::parent);
  }
}

/// Appends to `list` a copy of itself.
template <class T>
void double_list(std::vector<T>& list) {
  const std::vector<T> once = list;
  list.insert(list.end(), once.begin(), once.end());
}

}  // namespace

Result<JoinedChannels> join(const std::vector<MachineChannels>& machines, int ranks,
                            const JoinOptions& options) {
  CCL_CHECK(check_machines(machines, ranks));
  const int count = static_cast<int>(machines.size());
  JoinedChannels joined;
  std::vector<std::vector<TreeLinks>> twins;
  for (std::size_t c = 0; c < machines[0].ring.size(); ++c) {
    CCL_TRY(auto ring, join_ring(machines, ranks, c, options.cross_nic));
    joined.rings.push_back(std::move(ring));
    std::vector<TreeLinks> tree = link_chains(machines, ranks, c);
    std::vector<TreeLinks> twin = tree;
    for (int m = 0; m < count; ++m) {
      connect_machine(tree, machines, c, m, binary_tree(m, count));
      connect_machine(twin, machines, c, m, binary_twin(m, count));
    }
    joined.trees.push_back(std::move(tree));
    twins.push_back(std::move(twin));
  }
  joined.trees.insert(joined.trees.end(), std::make_move_iterator(twins.begin()),
                      std::make_move_iterator(twins.end()));
  double_list(joined.rings);
  for (int copy = 1; copy < options.extra_copies; copy *= 2) {
    double_list(joined.rings);
    double_list(joined.trees);
  }
  const std::size_t most = static_cast<std::size_t>(std::max(1, options.max_channels));
  if (joined.rings.size() > most) {
    joined.rings.resize(most);
    joined.trees.resize(most);
  }
  return joined;
}

std::string check(const JoinedChannels& joined, int ranks) {
  for (std::size_t c = 0; c < joined.rings.size(); ++c) {
    std::vector<char> seen(static_cast<std::size_t>(ranks), 0);
    if (static_cast<int>(joined.rings[c].size()) != ranks) {
      return fmt::format("ring {} has {} of {} ranks", c, joined.rings[c].size(), ranks);
    }
    for (const int rank : joined.rings[c]) {
      if (rank < 0 || rank >= ranks || seen[rank] != 0) {
        return fmt::format("ring {} holds rank {} twice or out of range", c, rank);
      }
      seen[rank] = 1;
    }
    const std::vector<TreeLinks>& tree = joined.trees[c];
    int root = -1;
    for (int rank = 0; rank < ranks; ++rank) {
      if (tree[rank].up >= 0) continue;
      if (root >= 0) return fmt::format("tree {} has two roots, {} and {}", c, root, rank);
      root = rank;
    }
    if (root < 0) return fmt::format("tree {} has no root", c);
    std::vector<int> open{root};
    int reached = 0;
    while (!open.empty()) {
      const int rank = open.back();
      open.pop_back();
      ++reached;
      if (reached > ranks) return fmt::format("tree {} has a cycle", c);
      for (const int child : tree[rank].down) {
        if (child < 0) continue;
        if (tree[child].up != rank) {
          return fmt::format("tree {}: {} has child {}, whose parent is {}", c, rank, child,
                             tree[child].up);
        }
        open.push_back(child);
      }
    }
    if (reached != ranks) return fmt::format("tree {} reaches {} of {} ranks", c, reached, ranks);
  }
  return "";
}

}  // namespace ccl::topo
