#pragma once

#include <ccl/types/result.hpp>
#include <ccl/topo/channel_graph.hpp>

#include <array>
#include <vector>

namespace ccl::topo {

/// A node of a binary tree over `count` nodes; -1: none.
struct BinaryPlace {
  int parent = -1;
  std::array<int, 2> child{-1, -1};  // smaller and larger subtree side
  int as_child = 0;                  // which of its parent's children it is
};

/// In-order binary tree: leaves are odd, so that in a mirrored or shifted twin they are inner
/// nodes. Node 0 is the root and has only a second child. Depth is at most log2(count) + 1.
BinaryPlace binary_tree(int node, int count);
/// The twin tree: mirrored for even counts, shifted by one for odd ones. A node that is inner in
/// one is a leaf in the other, so each carries half of the data both ways.
BinaryPlace binary_twin(int node, int count);

/// What one machine brings: its channels, in ranks of the whole communicator.
struct MachineChannels {
  std::vector<ChannelOrder> ring, tree;
  Pattern tree_pattern = Pattern::balanced_tree;
};

/// A rank's neighbours in one channel's tree.
struct TreeLinks {
  int up = -1;
  std::array<int, 3> down{-1, -1, -1};
};

struct JoinOptions {
  int cross_nic = 0;      // of the ring graph: 2 swaps pairs of channels on every other machine
  int max_channels = 64;  // after doubling
  int extra_copies = 1;   // further doubling, see `copies`
};

/// Rings and trees of a whole communicator. Channel c and c + rings.size() / 2 follow the same way
/// inside machines; of the trees, one runs over the binary tree and the other over its twin.
struct JoinedChannels {
  std::vector<std::vector<int>> rings;        // [channel]: ranks in order, from rank 0 on
  std::vector<std::vector<TreeLinks>> trees;  // [channel][rank]

  int count() const { return static_cast<int>(rings.size()); }
};

/// Closes channels over machines. All must have the same number of channels (see `align`).
/// Cost: O(channels * ranks).
[[nodiscard]] Result<JoinedChannels> join(const std::vector<MachineChannels>& machines, int ranks,
                                          const JoinOptions& options = {});

/// The same machine `count` times: rank r of machine m becomes r + m * ranks of one.
std::vector<MachineChannels> replicate(const ChannelGraph& ring, const ChannelGraph& tree,
                                       int count);

/// What all ranks can agree on: the fewest channels, the lowest speeds, the worst types.
ChannelGraph align(const ChannelGraph& mine, const std::vector<ChannelGraph>& all);

/// Times that channels are doubled beyond the pair of trees: from sm_90 on, few wide channels
/// between machines leave lanes idle.
int copies(const ChannelGraph& ring, int machines, int min_sm);

/// Empty if every ring holds each rank once and every tree reaches each rank once from one root
/// with links that agree on both ends; else what is wrong.
std::string check(const JoinedChannels& joined, int ranks);

}  // namespace ccl::topo
