#include <ccl/topo/arrange.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>

#include "topo/search/join_domains.hpp"

namespace ccl::topo {
namespace {

void add_child(TreePosition& position, int rank) {
  for (int& down : position.down) {
    if (down >= 0) continue;
    down = rank;
    return;
  }
}

/// True if every order holds every rank of the machine once.
bool whole(const Machine& machine) {
  for (const ChannelGraph* graph : {&machine.ring, &machine.tree}) {
    for (const ChannelOrder& order : graph->channels) {
      std::vector<int> sorted = order.ranks;
      std::sort(sorted.begin(), sorted.end());
      if (sorted != machine.ranks) return false;
    }
  }
  return !machine.ring.channels.empty() && !machine.tree.channels.empty();
}

Machine in_rank_order(std::vector<int> ranks) {
  Machine machine;
  machine.ring.channels.push_back({ranks});
  machine.tree.channels.push_back({ranks});
  machine.tree.pattern = Pattern::tree;
  machine.ranks = std::move(ranks);
  return machine;
}

}  // namespace

namespace {

using ShareNets = std::array<std::int16_t, MachineShare::max_channels>;

void put_nets(const ChannelGraph& graph, ShareNets& in, ShareNets& out) {
  in.fill(-1);
  out.fill(-1);
  for (int c = 0; c < std::min(graph.count(), MachineShare::max_channels); ++c) {
    const auto fits = [](int net) { return net <= std::numeric_limits<std::int16_t>::max(); };
    const ChannelOrder& order = graph.channels[c];
    if (order.net_in >= 0 && fits(order.net_in)) in[c] = static_cast<std::int16_t>(order.net_in);
    if (order.net_out >= 0 && fits(order.net_out)) {
      out[c] = static_cast<std::int16_t>(order.net_out);
    }
  }
}

void take_nets(ChannelGraph& graph, const ShareNets& in, const ShareNets& out) {
  for (int c = 0; c < graph.count(); ++c) {
    graph.channels[c].net_in = in[c];
    graph.channels[c].net_out = out[c];
  }
}

/// True if two ranks of a machine have found the same channels.
bool same_channels(const MachineShare& a, const MachineShare& b) {
  return a.ring_count == b.ring_count && a.tree_count == b.tree_count && a.ring_in == b.ring_in &&
         a.ring_out == b.ring_out && a.tree_in == b.tree_in && a.tree_out == b.tree_out &&
         a.same_rail == b.same_rail;
}

}  // namespace

MachineShare share_of(const Machine& machine, int rank) {
  MachineShare share;
  const auto count = [](const ChannelGraph& graph) {
    return std::min(graph.count(), MachineShare::max_channels);
  };
  share.machine = machine.ranks.front();
  share.ring_count = count(machine.ring);
  share.tree_count = count(machine.tree);
  share.ring_bw_intra = machine.ring.bw_intra;
  share.ring_bw_inter = machine.ring.bw_inter;
  share.tree_bw_intra = machine.tree.bw_intra;
  share.tree_bw_inter = machine.tree.bw_inter;
  share.ring_type_intra = static_cast<int>(machine.ring.type_intra);
  share.ring_type_inter = static_cast<int>(machine.ring.type_inter);
  share.tree_pattern = static_cast<int>(machine.tree.pattern);
  share.cross_nic = machine.ring.cross_nic;
  share.even = machine.even ? 1 : 0;
  share.gpu_bw = machine.gpu_bw;
  share.nvlink = machine.nvlink ? 1 : 0;
  share.fabric = machine.fabric;
  const auto place = static_cast<std::size_t>(
      std::lower_bound(machine.ranks.begin(), machine.ranks.end(), rank) - machine.ranks.begin());
  for (int c = 0; c < share.ring_count; ++c) share.ring[c] = machine.ring.channels[c].ranks[place];
  for (int c = 0; c < share.tree_count; ++c) share.tree[c] = machine.tree.channels[c].ranks[place];
  put_nets(machine.ring, share.ring_in, share.ring_out);
  put_nets(machine.tree, share.tree_in, share.tree_out);
  share.same_rail = machine.same_rail ? 1 : 0;
  if (place < machine.nets.size()) {
    const std::vector<int>& own = machine.nets[place];
    share.net_count = std::min(static_cast<int>(own.size()), MachineShare::max_nets);
    for (int n = 0; n < share.net_count; ++n) share.nets[n] = static_cast<std::int16_t>(own[n]);
  }
  if (place < machine.rails.size()) {
    const std::vector<int>& rails = machine.rails[place];
    share.rail_count = std::min(static_cast<int>(rails.size()), MachineShare::max_nets);
    for (int n = 0; n < share.rail_count; ++n) {
      share.rails[n] = static_cast<std::int16_t>(rails[n]);
    }
  }
  const auto head = std::find(machine.heads.begin(), machine.heads.end(), rank);
  if (head != machine.heads.end()) share.head = static_cast<int>(head - machine.heads.begin());
  return share;
}

namespace {
/// Heads of a machine with these ranks. Empty if the ranks do not agree on them.
std::vector<int> heads_of(std::span<const MachineShare> all, const std::vector<int>& ranks) {
  std::vector<int> heads;
  const auto at = [&](int place) {
    return std::find_if(ranks.begin(), ranks.end(), [&](int r) { return all[r].head == place; });
  };
  const auto counted =
      std::count_if(ranks.begin(), ranks.end(), [&](int r) { return all[r].head >= 0; });
  for (int place = 0; place < counted; ++place) {
    const auto found = at(place);
    if (found == ranks.end()) return {};
    heads.push_back(*found);
  }
  return heads;
}
}  // namespace

std::vector<Machine> machines_of(std::span<const MachineShare> all, std::string& wrong) {
  std::map<int, std::vector<int>> by_lowest;
  for (std::size_t r = 0; r < all.size(); ++r) {
    by_lowest[all[r].machine].push_back(static_cast<int>(r));
  }
  std::vector<Machine> machines;
  for (auto& [lowest, ranks] : by_lowest) {
    const MachineShare& first = all[ranks.front()];
    Machine machine;
    machine.ranks = ranks;
    machine.ring.bw_intra = first.ring_bw_intra;
    machine.ring.bw_inter = first.ring_bw_inter;
    machine.tree.bw_intra = first.tree_bw_intra;
    machine.tree.bw_inter = first.tree_bw_inter;
    machine.ring.type_intra = static_cast<PathType>(first.ring_type_intra);
    machine.ring.type_inter = static_cast<PathType>(first.ring_type_inter);
    machine.tree.pattern = static_cast<Pattern>(first.tree_pattern);
    machine.ring.cross_nic = first.cross_nic;
    machine.even = first.even != 0;
    machine.gpu_bw = first.gpu_bw;
    machine.nvlink = first.nvlink != 0;
    const auto in_one = [&](int r) { return all[r].fabric == first.fabric; };
    if (std::all_of(ranks.begin(), ranks.end(), in_one)) machine.fabric = first.fabric;
    bool agreed = lowest == ranks.front();
    const auto fits = [](int count) { return count > 0 && count <= MachineShare::max_channels; };
    for (const int r : ranks) {
      agreed = agreed && same_channels(all[r], first) && fits(all[r].ring_count) &&
               fits(all[r].tree_count);
      machine.nets.emplace_back(all[r].nets.begin(), all[r].nets.begin() + all[r].net_count);
      machine.rails.emplace_back(all[r].rails.begin(), all[r].rails.begin() + all[r].rail_count);
    }
    machine.same_rail = first.same_rail != 0;
    if (agreed) {
      machine.heads = heads_of(all, ranks);
      machine.ring.channels.resize(static_cast<std::size_t>(first.ring_count));
      machine.tree.channels.resize(static_cast<std::size_t>(first.tree_count));
      for (const int r : ranks) {
        for (int c = 0; c < first.ring_count; ++c) {
          machine.ring.channels[c].ranks.push_back(all[r].ring[c]);
        }
        for (int c = 0; c < first.tree_count; ++c) {
          machine.tree.channels[c].ranks.push_back(all[r].tree[c]);
        }
      }
      take_nets(machine.ring, first.ring_in, first.ring_out);
      take_nets(machine.tree, first.tree_in, first.tree_out);
    }
    if (!agreed || !whole(machine)) {
      wrong = fmt::format(
          "the ranks of rank {}'s machine see different machines (other settings, or devices "
          "hidden from some?); they stay in the order of ranks",
          ranks.front());
      auto nets = std::move(machine.nets), rails = std::move(machine.rails);
      const std::uint64_t fabric = machine.fabric;
      machine = in_rank_order(ranks);
      machine.fabric = fabric;
      machine.nets = std::move(nets);
      machine.gpu_bw = first.gpu_bw;
      machine.nvlink = first.nvlink != 0;
      machine.rails = std::move(rails);
    }
    machines.push_back(std::move(machine));
  }
  return machines;
}

Arrangement Arrangement::in_order(int ranks) {
  std::vector<int> all(static_cast<std::size_t>(ranks));
  for (int r = 0; r < ranks; ++r) all[r] = r;
  return *of({in_rank_order(std::move(all))}, ranks);
}

namespace {
/// Index of the machine of each rank; -1: on none.
std::vector<int> machine_of_ranks(const std::vector<Machine>& machines, int ranks) {
  std::vector<int> of(static_cast<std::size_t>(ranks), -1);
  for (std::size_t m = 0; m < machines.size(); ++m) {
    for (const int r : machines[m].ranks) {
      if (r >= 0 && r < ranks) of[r] = static_cast<int>(m);
    }
  }
  return of;
}
}  // namespace

Result<Arrangement> Arrangement::of(std::vector<Machine> hosts, int ranks) {
  if (hosts.empty()) {
    return fail(Errc::invalid_argument, "no machines to arrange (0 ranks); give at least one");
  }
  Arrangement made;
  std::vector<Machine> machines = join_domains(hosts);
  if (machines.size() < hosts.size()) {
    made.host_of_ = machine_of_ranks(hosts, ranks);
    made.hosts_ = std::move(hosts);
  }
  made.tree_pattern_ = machines[0].tree.pattern;  // simpler ones have larger numbers
  std::size_t ring_count = MachineShare::max_channels, tree_count = ring_count;
  int cross_nic = 0;
  for (const Machine& machine : machines) {
    ring_count = std::min(ring_count, machine.ring.channels.size());
    tree_count = std::min(tree_count, machine.tree.channels.size());
    cross_nic = std::max(cross_nic, machine.ring.cross_nic);
    made.tree_pattern_ = std::max(made.tree_pattern_, machine.tree.pattern);
  }
  // If all pairs are alike, so are all orders: a single one keeps the number of peers small.
  if (machines.size() == 1 && machines[0].even)
    ring_count = tree_count = std::min<std::size_t>(ring_count, 1);
  std::vector<MachineChannels> channels;
  for (const Machine& machine : machines) {
    MachineChannels orders;
    orders.ring = machine.ring.channels;
    orders.ring.resize(ring_count);
    orders.tree = orders.ring;
    channels.push_back(std::move(orders));
  }
  JoinOptions options;
  options.cross_nic = cross_nic;
  made.swaps_pairs_ = cross_nic == 2;
  CCL_TRY(JoinedChannels joined, join(channels, ranks, options));
  joined.rings.resize(ring_count);
  made.rings_ = std::move(joined.rings);

  made.machine_of_ = machine_of_ranks(machines, ranks);
  if (std::count(made.machine_of_.begin(), made.machine_of_.end(), -1) != 0) {
    return fail(Errc::mismatch, "some ranks are on no machine; gather what all of them tell");
  }
  for (std::size_t t = 0; t < tree_count; ++t) {
    Order order;
    order.place.resize(static_cast<std::size_t>(ranks));
    for (const Machine& machine : machines) {
      order.chains.push_back(machine.tree.channels[t].ranks);
      for (std::size_t i = 0; i < order.chains.back().size(); ++i) {
        order.place[order.chains.back()[i]] = static_cast<int>(i);
      }
    }
    made.orders_.push_back(std::move(order));
  }
  made.machines_ = std::move(machines);
  return made;
}

double Arrangement::gpu_gbs() const {
  double least = 0;
  for (const Machine& machine : machines_) {
    const double gbs = machine.gpu_bw;
    if (gbs > 0 && (least == 0 || gbs < least)) least = gbs;
  }
  return least;
}

bool Arrangement::by_nvlink() const {
  return std::all_of(machines_.begin(), machines_.end(), [](const Machine& machine) {
    return machine.ranks.size() < 2 || machine.nvlink;
  });
}

/// Rank of a machine that connects to its `child`-th child machine: balanced trees divide the NIC's
/// traffic between two ranks.
int Arrangement::gate(const Order& order, int machine, int child) const {
  const std::vector<int>& chain = order.chains[machine];
  const bool second =
      child == 0 ? tree_pattern_ != Pattern::tree : tree_pattern_ == Pattern::split_tree;
  return chain[second && chain.size() > 1 ? 1 : 0];
}

/// Adds the part of a position inside the machine: a binary tree below `head` if all pairs are
/// alike, else the chain, which `head` may divide in two.
void Arrangement::add_inside(TreePosition& position, const Order& order, int rank, int head,
                             bool twin) const {
  const int machine = machine_of_[rank];
  const std::vector<int>& chain = order.chains[machine];
  const int count = static_cast<int>(chain.size());
  const int place = order.place[rank], top = order.place[head];
  if (!machines_[machine].even) {
    if (place != top) position.up = chain[place < top ? place + 1 : place - 1];
    if (place <= top && place > 0) add_child(position, chain[place - 1]);
    if (place >= top && place + 1 < count) add_child(position, chain[place + 1]);
    return;
  }
  // Places below the head. The twin shifts them by one, which turns leaves into inner nodes.
  int below = (place - top + count) % count;
  if (twin && below > 0) below = below == 1 ? count - 1 : below - 1;
  const auto rank_at = [&](int n) {
    if (twin && n > 0) n = n == count - 1 ? 1 : n + 1;
    return chain[(top + n) % count];
  };
  const TreePosition local = ccl::detail::binary_tree(below, count);
  if (local.up >= 0) position.up = rank_at(local.up);
  for (const int down : local.down) {
    if (down >= 0) add_child(position, rank_at(down));
  }
}

TreePosition Arrangement::tree(int rank, int root, int channel) const {
  TreePosition position = neighbors(rank, root, channel);
  if (machine_count() == 1 && machines_[0].even) return position;
  for (int at = rank, up = position.up; up >= 0; up = neighbors(at = up, root, channel).up) {
    ++(machine_of_[at] == machine_of_[up] ? position.near : position.far);
  }
  return position;
}

/// A position has its distance from the root only if all ranks are alike.
TreePosition Arrangement::neighbors(int rank, int root, int channel) const {
  const bool twin = root < 0 && channel % 2 != 0;
  const int way = root < 0 ? channel / 2 : channel;
  const Order& order = orders_[static_cast<std::size_t>(way) % orders_.size()];
  const int count = machine_count();
  if (count == 1 && machines_[0].even) {
    const std::vector<int>& chain = order.chains[0];
    const TreePosition flat = double_binary_tree(order.place[rank], ranks(),
                                                 root < 0 ? 0 : order.place[root], twin ? 1 : 0);
    TreePosition position;
    position.near = flat.near;
    if (flat.up >= 0) position.up = chain[flat.up];
    for (int d = 0; d < TreePosition::arity; ++d) {
      if (flat.down[d] >= 0) position.down[d] = chain[flat.down[d]];
    }
    return position;
  }
  const int machine = machine_of_[rank];
  const int root_machine = root < 0 ? 0 : machine_of_[root];
  const auto place_of = [&](int m) {
    if (twin) return binary_twin(m, count);
    BinaryPlace place = binary_tree((m - root_machine + count) % count, count);
    const auto back = [&](int n) { return n < 0 ? -1 : (n + root_machine) % count; };
    place.parent = back(place.parent);
    for (int& child : place.child) child = back(child);
    return place;
  };
  const auto head_of = [&](int m) {
    return root >= 0 && m == root_machine ? root : order.chains[m].front();
  };
  const auto gate_of = [&](int m, int child) {
    return root >= 0 && m == root_machine ? root : gate(order, m, child);
  };
  TreePosition position;
  add_inside(position, order, rank, head_of(machine), twin);
  const BinaryPlace place = place_of(machine);
  if (rank == head_of(machine) && place.parent >= 0) {
    position.up = gate_of(place.parent, place.as_child);
  }
  for (int child = 0; child < 2; ++child) {
    if (place.child[child] >= 0 && gate_of(machine, child) == rank) {
      add_child(position, head_of(place.child[child]));
    }
  }
  return position;
}

}  // namespace ccl::topo
