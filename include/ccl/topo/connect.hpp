#pragma once

#include <ccl/topo/channel_graph.hpp>
#include <ccl/types/result.hpp>

#include <array>
#include <vector>

namespace ccl::topo {

/// Node of a binary tree over `count` nodes; -1: none.
struct BinaryPlace {
  int parent = -1;
  std::array<int, 2> child{-1, -1};  ///< on the sides of the smaller and the larger subtree
  int as_child = 0;                  ///< index among its parent's children
};

/// Returns the place of `node` in the in-order binary tree. Leaves are odd, so they are inner nodes
/// in a mirrored or shifted twin. Node 0 is the root and has only a second child; the depth is at
/// most log2(count) + 1.
BinaryPlace binary_tree(int node, int count);
/// Returns the place of `node` in the twin tree: mirrored for even counts, shifted by one for odd
/// ones. An inner node of one tree is a leaf of the other, so each tree carries half of the data
/// both ways.
BinaryPlace binary_twin(int node, int count);

/// Channels of one machine, in ranks of the whole communicator.
struct MachineChannels {
  std::vector<ChannelOrder> ring, tree;
  Pattern tree_pattern = Pattern::balanced_tree;
};

/// Neighbors of a rank in the tree of one channel.
struct TreeLinks {
  int up = -1;
  std::array<int, 3> down{-1, -1, -1};
};

/// Options of `join`.
struct JoinOptions {
  int cross_nic = 0;      ///< of the ring graph; 2 swaps pairs of channels on every other machine
  int max_channels = 64;  ///< limit after doubling
  int extra_copies = 1;   ///< factor of further doubling; see `copies`
};

/// Rings and trees of a whole communicator. Channels c and c + rings.size() / 2 have the same
/// routes inside machines. One of their trees runs over the binary tree, and the other over its
/// twin.
struct JoinedChannels {
  std::vector<std::vector<int>> rings;        ///< [channel]: ranks in order, starting at rank 0
  std::vector<std::vector<TreeLinks>> trees;  ///< [channel][rank]

  /// Returns the number of channels.
  int count() const { return static_cast<int>(rings.size()); }
};

/// Joins the channels of all machines. All machines must have the same number of channels; see
/// `align`. Cost: O(channels * ranks).
[[nodiscard]] Result<JoinedChannels> join(const std::vector<MachineChannels>& machines, int ranks,
                                          const JoinOptions& options = {});

/// Returns `count` copies of one machine: rank r of machine m becomes r + m * (ranks of a machine).
std::vector<MachineChannels> replicate(const ChannelGraph& ring, const ChannelGraph& tree,
                                       int count);

/// Returns the graph that all ranks can use: the fewest channels, the lowest speeds, the worst
/// types.
ChannelGraph align(const ChannelGraph& mine, const std::vector<ChannelGraph>& all);

/// Returns the factor by which channels are doubled beyond the pair of trees. From sm_90 on, few
/// wide channels between machines leave lanes idle.
int copies(const ChannelGraph& ring, int machines, int min_sm);

/// Returns an empty text if the channels are valid, else the defect. Valid means that
/// - every ring holds each rank once,
/// - every tree reaches each rank once from one root,
/// - both ends of each link agree.
std::string check(const JoinedChannels& joined, int ranks);

}  // namespace ccl::topo
