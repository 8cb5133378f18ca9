#pragma once

#include <ccl/types/result.hpp>
#include <ccl/types/position.hpp>
#include <ccl/topo/connect.hpp>

#include <array>
#include <span>
#include <string>
#include <vector>

namespace ccl::topo {

/// Ranks that reach each other without the network, and the channels found for them. `ring` and
/// `tree` hold these ranks, by their numbers in the communicator.
struct Machine {
  std::vector<int> ranks;  // ascending
  ChannelGraph ring, tree;
  bool even = true;  // all pairs are alike, so that trees inside may take any shape
};

/// What a rank says about its machine. All of a machine's ranks hold the same `Machine`; each tells
/// its own part of the orders, so that the size does not depend on the machine. Travels as bytes.
struct MachineShare {
  static constexpr int max_channels = 32;
  int machine = -1;  // its lowest rank
  int ring_count = 0, tree_count = 0;
  float ring_bw_intra = 0, ring_bw_inter = 0, tree_bw_intra = 0, tree_bw_inter = 0;
  int ring_type_intra = 0, ring_type_inter = 0;
  int tree_pattern = 0, cross_nic = 0;
  int even = 1;
  std::array<int, max_channels> ring{}, tree{};  // of the n-th rank: the n-th of each order
};

MachineShare share_of(const Machine& machine, int rank);

/// The machines of a communicator, by lowest rank, out of what all ranks told, in their order.
/// Where ranks of one machine do not agree, its order is that of ranks, and `wrong` says so.
std::vector<Machine> machines_of(std::span<const MachineShare> all, std::string& wrong);

/// Rings and trees of a communicator: aligned over its machines, each of which a ring enters and
/// leaves once, and a tree enters once. The same on all ranks.
class Arrangement {
 public:
  Arrangement() = default;
  /// One machine, ranks in their order.
  static Arrangement in_order(int ranks);
  static Result<Arrangement> of(std::vector<Machine> machines, int ranks);

  /// Different rings; others repeat them.
  int ring_count() const { return static_cast<int>(rings_.size()); }
  /// Ranks in order; `channel` may be any number.
  const std::vector<int>& ring(int channel) const {
    return rings_[static_cast<std::size_t>(channel) % rings_.size()];
  }
  int ranks() const { return static_cast<int>(machine_of_.size()); }
  int machine_count() const { return static_cast<int>(machines_.size()); }
  int machine_of(int rank) const { return machine_of_[rank]; }
  int tree_count() const { return static_cast<int>(orders_.size()); }
  /// A rank's place in the tree of a channel. With a root, it is that tree's; without (-1), every
  /// second channel has the twin of the tree before it, where inner nodes and leaves change.
  TreePosition tree(int rank, int root, int channel) const;

 private:
  struct Order {
    std::vector<std::vector<int>> chains;  // [machine]
    std::vector<int> place;                // [rank], in its machine's chain
  };
  TreePosition neighbours(int rank, int root, int channel) const;
  int gate(const Order& order, int machine, int child) const;
  void add_inside(TreePosition& position, const Order& order, int rank, int head, bool twin) const;

  std::vector<Machine> machines_;
  std::vector<int> machine_of_;
  std::vector<std::vector<int>> rings_;
  std::vector<Order> orders_;  // of trees
  Pattern tree_pattern_ = Pattern::tree;
};

}  // namespace ccl::topo
