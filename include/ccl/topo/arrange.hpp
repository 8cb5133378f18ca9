#pragma once

#include <ccl/topo/connect.hpp>
#include <ccl/types/position.hpp>
#include <ccl/types/result.hpp>

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace ccl::topo {

/// Ranks that reach each other without the network, and the channels found for them. `ring` and
/// `tree` hold these ranks by their numbers in the communicator.
struct Machine {
  std::vector<int> ranks;  ///< ascending
  ChannelGraph ring, tree;
  /// Device numbers of the NETs of each of `ranks`, in the order in which its channels take them;
  /// empty: unknown.
  std::vector<std::vector<int>> nets;
  /// Device numbers of the NETs of other ranks by which messages of each of `ranks` may leave, too:
  /// those on the receiver's rail.
  std::vector<std::vector<int>> rails;
  bool same_rail = false;  ///< true: messages leave by the NIC of the receiver's rail only
  bool even = true;        ///< true: all pairs are alike, so trees inside may have any shape
  float gpu_bw = 0;        ///< GB/s of the links of a GPU to the others; 0: unknown, or no GPUs
  bool nvlink = false;     ///< true: all GPUs reach each other by NVLink, to which `gpu_bw` belongs
  /// NVLink domain of all its GPUs, by which they reach those of other hosts; 0: none.
  std::uint64_t fabric = 0;
  /// Ranks at which the channels of the NVLS graph begin, in the order of these; empty: there is no
  /// such graph.
  std::vector<int> heads{};
};

/// Part of a `Machine` that one rank publishes. All ranks of a machine hold the same `Machine`, and
/// each publishes its own entries of the orders, so the size is constant. Sent as bytes.
struct MachineShare {
  static constexpr int max_channels = 32;
  static constexpr int max_nets = 32;
  int machine = -1;  ///< lowest rank of the machine
  int ring_count = 0, tree_count = 0;
  float ring_bw_intra = 0, ring_bw_inter = 0, tree_bw_intra = 0, tree_bw_inter = 0;
  int ring_type_intra = 0, ring_type_inter = 0;
  int tree_pattern = 0, cross_nic = 0;
  int even = 1, nvlink = 0;
  float gpu_bw = 0;
  std::uint64_t fabric = 0;  ///< NVLink domain in which the rank shares memory with other hosts
  /// Entries of each order at this rank's index in its machine.
  std::array<int, max_channels> ring{}, tree{};
  /// Device numbers of the NETs of each order; -1: none. All ranks of a machine publish the same.
  std::array<std::int16_t, max_channels> ring_in{}, ring_out{}, tree_in{}, tree_out{};
  int net_count = 0, same_rail = 0;
  std::array<std::int16_t, max_nets> nets{};  ///< this rank's own
  int rail_count = 0;
  std::array<std::int16_t, max_nets> rails{};  ///< this rank's entry of `Machine::rails`
  int head = -1;                               ///< place of this rank in `Machine::heads`; -1: none
};

/// Role of an edge in its composition.
enum class EdgeUse {
  pair,        ///< messages between two ranks
  ring,        ///< neighbors in the ring of a channel
  tree,        ///< parent and child in one of the two trees of a channel
  rooted_tree  ///< parent and child in the tree of a channel with a root
};

/// One end of an edge between machines.
struct NetEnd {
  EdgeUse use = EdgeUse::pair;
  int rank = 0, peer = 0;
  int channel = 0;
  bool sends = true;
};

/// Returns the part of `machine` that `rank` publishes.
MachineShare share_of(const Machine& machine, int rank);

/// Returns the machines of a communicator, sorted by lowest rank, from the shares of all ranks in
/// rank order. If the ranks of a machine disagree, its order is by rank and `wrong` holds the
/// reason.
std::vector<Machine> machines_of(std::span<const MachineShare> all, std::string& wrong);

/// Rings and trees of a communicator, aligned over its machines. A ring enters and leaves each
/// machine once, and a tree enters each machine once. Equal on all ranks.
class Arrangement {
 public:
  Arrangement() = default;
  /// Returns the arrangement of one machine with its ranks in order.
  static Arrangement in_order(int ranks);
  /// Returns the arrangement of `ranks` ranks on these hosts. Hosts of one NVLink domain
  /// (`Machine::fabric`) are one machine.
  [[nodiscard]] static Result<Arrangement> of(std::vector<Machine> hosts, int ranks);

  /// Returns the number of different rings; further channels repeat them.
  int ring_count() const { return static_cast<int>(rings_.size()); }
  /// Returns the ranks in ring order; `channel` may be any number from 0.
  const std::vector<int>& ring(int channel) const {
    return rings_[static_cast<std::size_t>(channel) % rings_.size()];
  }
  /// Returns the number of ranks.
  int ranks() const { return static_cast<int>(machine_of_.size()); }
  /// Returns the number of machines.
  int machine_count() const { return static_cast<int>(machines_.size()); }
  /// Returns the index of the rank's machine.
  int machine_of(int rank) const { return machine_of_[static_cast<std::size_t>(rank)]; }
  /// Returns the number of different trees; further channels repeat them.
  int tree_count() const { return static_cast<int>(orders_.size()); }
  /// Returns the position of `rank` in the tree of a channel with this root. Without a root (-1),
  /// every second channel has the twin of the tree before it, in which inner nodes and leaves are
  /// swapped.
  TreePosition tree(int rank, int root, int channel) const;
  /// Decides which NIC an end of an edge between machines uses. Returns the device number of the
  /// NET on the host of `end.rank`, or -1 if the topology knows none. The runtime, `explain` and
  /// the simulator ask this function.
  /// - Ring and tree: the NIC that the search gave to the channel.
  /// - Pairs, and other edges: the NICs of the receiver's rail if the sender may use them (see
  ///   `Machine::rails`), else the nearest NICs of the rank, in turn by channel and peer.
  int net(const NetEnd& end) const;
  /// Returns the NICs of a rank in the order in which channels take them; empty: unknown.
  const std::vector<int>& nets_of(int rank) const;
  /// Returns the heads of the rank's host (see `Machine::heads`); empty: unknown.
  const std::vector<int>& heads_of(int rank) const { return hosts()[host_at(rank)].heads; }
  /// Replaces them, in a level of another communicator.
  void set_heads(int rank, std::vector<int> heads) {
    (hosts_.empty() ? machines_ : hosts_)[host_at(rank)].heads = std::move(heads);
  }
  /// Returns the GB/s that all rings carry from a machine to the next, by the machine where they
  /// carry least; 0: unknown, or there is one machine.
  double between_gbs() const;
  /// Returns the GB/s of the links of a GPU to those of its machine, by the machine where they are
  /// slowest; 0: unknown, or each rank is alone.
  double gpu_gbs() const;
  /// Returns true if all GPUs of every machine reach each other by NVLink.
  bool by_nvlink() const;
  /// Returns the largest number of NICs of any rank; 0: unknown.
  int max_nets() const;

 private:
  struct Order {
    std::vector<std::vector<int>> chains;  // [machine]: ranks in order
    std::vector<int> place;                // [rank]: place in the chain of its machine
  };
  TreePosition neighbors(int rank, int root, int channel) const;
  int gate(const Order& order, int machine, int child) const;
  int ring_net(const NetEnd& end) const;
  int tree_net(const NetEnd& end) const;
  int pair_net(const NetEnd& end) const;
  const std::vector<Machine>& hosts() const { return hosts_.empty() ? machines_ : hosts_; }
  int host_of(int rank) const {
    return (host_of_.empty() ? machine_of_ : host_of_)[static_cast<std::size_t>(rank)];
  }
  std::size_t host_at(int rank) const { return static_cast<std::size_t>(host_of(rank)); }
  int place_of(int rank) const;
  void add_inside(TreePosition& position, const Order& order, int rank, int head, bool twin) const;

  std::vector<Machine> machines_;
  std::vector<int> machine_of_;
  std::vector<Machine> hosts_;  // empty: `machines_`
  std::vector<int> host_of_;    // empty: `machine_of_`
  std::vector<std::vector<int>> rings_;
  std::vector<Order> orders_;  // orders of the trees
  Pattern tree_pattern_ = Pattern::tree;
  bool swaps_pairs_ = false;  // see `join`
};

}  // namespace ccl::topo
