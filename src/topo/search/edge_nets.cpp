// The NIC of each end of an edge between machines.
#include <ccl/topo/arrange.hpp>

#include <algorithm>

namespace ccl::topo {

int Arrangement::net(const NetEnd& end) const {
  if (machine_of_[end.rank] == machine_of_[end.peer]) return pair_net(end);
  int net = -1;
  if (end.use == EdgeUse::ring) net = ring_net(end);
  if (end.use == EdgeUse::tree || end.use == EdgeUse::rooted_tree) net = tree_net(end);
  return net >= 0 ? net : pair_net(end);
}

const std::vector<int>& Arrangement::nets_of(int rank) const {
  static const std::vector<int> none;
  const Machine& machine = hosts()[host_of(rank)];
  const auto place = static_cast<std::size_t>(place_of(rank));
  return place < machine.nets.size() ? machine.nets[place] : none;
}

double Arrangement::between_gbs() const {
  if (machine_count() < 2) return 0;
  double least = -1;
  for (const Machine& machine : machines_) {
    const double gbs = double(ring_count()) * machine.ring.bw_inter;
    least = least < 0 ? gbs : std::min(least, gbs);
  }
  return least;
}

int Arrangement::max_nets() const {
  std::size_t most = 0;
  for (const Machine& machine : hosts()) {
    for (const auto& nets : machine.nets) most = std::max(most, nets.size());
  }
  return static_cast<int>(most);
}

/// The ring enters a machine at the first rank of its order and leaves it at the last. Algorithms
/// that name other ranks by their places in the ring have edges that are none of the ring's.
int Arrangement::ring_net(const NetEnd& end) const {
  const std::vector<int>& whole = ring(end.channel);
  const auto at = std::find(whole.begin(), whole.end(), end.rank) - whole.begin();
  const auto count = static_cast<std::ptrdiff_t>(whole.size());
  const bool to_next = end.sends && whole[(at + 1) % count] == end.peer;
  const bool from_prev = !end.sends && whole[(at + count - 1) % count] == end.peer;
  if (!to_next && !from_prev) return -1;
  const int m = machine_of_[end.rank];
  const std::size_t rings = rings_.size();
  std::size_t c = static_cast<std::size_t>(end.channel) % rings;
  if (swaps_pairs_ && m % 2 == 1 && rings % 2 == 0) c ^= 1U;  // as `join` does
  const ChannelOrder& order = machines_[m].ring.channels[c];
  return end.sends ? order.net_out : order.net_in;
}

/// A tree enters a machine at the head of its chain. The second rank of a balanced tree has the
/// other children.
int Arrangement::tree_net(const NetEnd& end) const {
  const int m = machine_of_[end.rank];
  const int way = end.use == EdgeUse::tree ? end.channel / 2 : end.channel;
  const std::size_t c = static_cast<std::size_t>(way) % orders_.size();
  const std::vector<int>& chain = orders_[c].chains[m];
  const ChannelOrder& order = machines_[m].tree.channels[c];
  if (end.rank == chain[0]) return order.net_in;
  if (chain.size() > 1 && end.rank == chain[1]) return order.net_out;
  return -1;
}

int Arrangement::place_of(int rank) const {
  const std::vector<int>& ranks = hosts()[host_of(rank)].ranks;
  return static_cast<int>(std::lower_bound(ranks.begin(), ranks.end(), rank) - ranks.begin());
}

/// Ranks of one place on two machines take the same turn, so that they use NICs of one rail, and
/// GPUs that share NICs begin at different ones.
int Arrangement::pair_net(const NetEnd& end) const {
  const int m = host_of(end.rank), there = host_of(end.peer);
  const Machine& machine = hosts()[m];
  const int place = place_of(end.rank), theirs = place_of(end.peer);
  const auto turn_of = [&](const std::vector<int>& nets) {
    if (nets.empty()) return -1;
    const int count = static_cast<int>(nets.size());
    const int turn = end.channel + m + there + (place ^ theirs);  // the same at both ends
    return nets[static_cast<std::size_t>(turn % count)];
  };
  if (end.sends && there != m) {
    const auto across = static_cast<std::size_t>(theirs) % machine.ranks.size();
    const int rail = turn_of(nets_of(machine.ranks[across]));
    if (machine.same_rail) return rail;
    if (static_cast<std::size_t>(place) < machine.rails.size()) {
      const std::vector<int>& rails = machine.rails[static_cast<std::size_t>(place)];
      if (std::find(rails.begin(), rails.end(), rail) != rails.end()) return rail;
    }
  }
  return turn_of(nets_of(end.rank));
}

}  // namespace ccl::topo
