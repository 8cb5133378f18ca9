#pragma once

#include <ccl/comm/communicator.hpp>
#include <ccl/types/position.hpp>

#include <cstddef>
#include <vector>

namespace ccl::detail {

struct ReducingNetwork;

/// Positions of this rank in the rings and trees of all channels of one composition.
struct PositionTable {
  /// Assigns the rings of the topology to the channels in turn.
  static PositionTable make(const Communicator& comm, int channels);

  /// Enters the trees of `root`. A GPU gets the trees of all roots, because launches of different
  /// roots may be in flight at once.
  void set_root(const Communicator& comm, int root, bool double_tree);

  const RingPosition& ring(int channel) const { return rings[std::size_t(channel)]; }
  const TreePosition& tree(int channel, int root) const {
    return trees[std::size_t(of_all_roots ? channels * root + channel : channel)];
  }

  /// Enters the places among the ranks of this host. `heads`: of a host on one channel. With one,
  /// channels have different heads.
  void set_hosts(const Communicator& comm, const ReducingNetwork& network, int heads);

  int channels = 0;
  bool of_all_roots = false;        // `trees` holds the trees of all roots, one root after another
  std::vector<int> order;           // ranks of each ring, which `rings` points into
  std::vector<RingPosition> rings;  // one for each channel
  std::vector<TreePosition> trees;
  std::vector<int> host_order;      // ranks of this host for each channel, `hosts` points into it
  std::vector<int> all_heads;       // of all hosts, `hosts` points into it
  std::vector<HostPosition> hosts;  // one for each channel; empty without a network that reduces
  std::vector<bool> connected;      // one for each root: the wires that the positions need exist
};

}  // namespace ccl::detail
