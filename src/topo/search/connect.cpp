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
  const auto there = [&](int n) { return mirrored ? count - 1 - n : (n - 1 + count) % count; };
  const auto back = [&](int n) {
    if (n < 0) return -1;
    return mirrored ? count - 1 - n : (n + 1) % count;
  };
  BinaryPlace place = binary_tree(there(node), count);
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
    // Simpler trees are understood by all.
    agreed.pattern =
        agreed.pattern == Pattern::ring ? agreed.pattern : std::max(agreed.pattern, other.pattern);
  }
  return agreed;
}

int copies(const ChannelGraph& ring, int machines, int min_sm) {
  return min_sm >= 90 && machines > 1 && ring.bw_intra > 45 && ring.count() * 2 < 16 ? 2 : 1;
}

Result<JoinedChannels> join(const std::vector<MachineChannels>& machines, int ranks,
                            const JoinOptions& options) {
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
    for (const auto* orders : {&machines[m].ring, &machines[m].tree}) {
      for (const ChannelOrder& order : *orders) {
        for (const int rank : order.ranks) {
          if (rank < 0 || rank >= ranks) {
            return fail(
                Errc::invalid_argument,
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
  }
  JoinedChannels joined;
  std::vector<std::vector<TreeLinks>> first_trees, second_trees;
  for (std::size_t c = 0; c < base; ++c) {
    std::vector<int> ring;
    ring.reserve(static_cast<std::size_t>(ranks));
    for (int m = 0; m < count; ++m) {
      // Rails: where a channel enters by one NIC and leaves by another, every other machine swaps
      // pairs of channels, so that a NIC always talks to its like.
      const bool swap = options.cross_nic == 2 && m % 2 == 1 && base % 2 == 0;
      const std::vector<int>& order = machines[m].ring[swap ? c ^ 1U : c].ranks;
      ring.insert(ring.end(), order.begin(), order.end());
    }
    if (static_cast<int>(ring.size()) != ranks) {
      return fail(Errc::mismatch, fmt::format("ring {} has {} of {} ranks (a machine is missing or "
                                              "brings others' ranks); gather all graphs",
                                              c, ring.size(), ranks));
    }
    const auto start = std::find(ring.begin(), ring.end(), 0);
    if (start != ring.end()) std::rotate(ring.begin(), start, ring.end());
    joined.rings.push_back(std::move(ring));

    std::vector<TreeLinks> straight(static_cast<std::size_t>(ranks));
    for (int m = 0; m < count; ++m) {
      const std::vector<int>& chain = machines[m].tree[c].ranks;
      for (std::size_t i = 0; i < chain.size(); ++i) {
        if (i > 0) straight[chain[i]].up = chain[i - 1];
        if (i + 1 < chain.size()) straight[chain[i]].down[0] = chain[i + 1];
      }
    }
    std::vector<TreeLinks> twin = straight;
    // Which rank of a machine talks to its parent machine, and which to its children.
    const auto gate = [&](int machine, int kind) {
      const MachineChannels& m = machines[machine];
      const std::vector<int>& chain = m.tree[c].ranks;
      const bool second = kind == 1   ? m.tree_pattern != Pattern::tree
                          : kind == 2 ? m.tree_pattern == Pattern::split_tree
                                      : false;
      return chain[second && chain.size() > 1 ? 1 : 0];
    };
    for (int m = 0; m < count; ++m) {
      const auto connect = [&](std::vector<TreeLinks>& tree, const BinaryPlace& place) {
        if (place.parent >= 0) {
          tree[gate(m, 0)].up = gate(place.parent, 1 + place.as_child);
        }
        for (int child = 0; child < 2; ++child) {
          if (place.child[child] < 0) continue;
          auto& down = tree[gate(m, 1 + child)].down;
          *std::find(down.begin(), down.end() - 1, -1) = gate(place.child[child], 0);
        }
      };
      connect(straight, binary_tree(m, count));
      connect(twin, binary_twin(m, count));
    }
    first_trees.push_back(std::move(straight));
    second_trees.push_back(std::move(twin));
  }
  joined.trees = std::move(first_trees);
  joined.trees.insert(joined.trees.end(), std::make_move_iterator(second_trees.begin()),
                      std::make_move_iterator(second_trees.end()));
  const std::vector<std::vector<int>> once = joined.rings;
  joined.rings.insert(joined.rings.end(), once.begin(), once.end());
  for (int copy = 1; copy < options.extra_copies; copy *= 2) {
    const auto rings = joined.rings;
    const auto trees = joined.trees;
    joined.rings.insert(joined.rings.end(), rings.begin(), rings.end());
    joined.trees.insert(joined.trees.end(), trees.begin(), trees.end());
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
