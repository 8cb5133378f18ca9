#pragma once

#include <ccl/topo/arrange.hpp>
#include <ccl/topo/configured.hpp>
#include <ccl/topo/path.hpp>
#include <ccl/topo/search.hpp>

#include <cstddef>
#include <vector>

namespace ccl::sim {

/// Nodes of one kind, joined by a network that is never the bottleneck: a NIC can receive all that
/// another sends. Rank r is GPU r % locals of node r / locals. The ranks of a file that has those
/// of 0 to locals - 1 stay; else its GPUs are numbered in order.
class Cluster {
 public:
  /// Returns a cluster of `nodes` copies of `machine`. Searches the channels of the machine and
  /// joins them over the nodes, as a communicator with these rules does.
  static Result<Cluster> of(const topo::Graph& machine, int nodes,
                            const topo::PathRules& rules = {}, const topo::NetRules& nets = {});

  int nodes() const { return nodes_; }
  int locals() const { return int(gpus_.size()); }
  int ranks() const { return nodes_ * locals(); }
  bool on_cpus() const { return on_cpus_; }
  const topo::Graph& machine() const { return graph_; }
  const topo::Paths& paths() const { return paths_; }
  const topo::PathRules& rules() const { return rules_; }
  /// Returns the node of a local rank in `machine`.
  int gpu(int local) const { return gpus_[std::size_t(local)]; }
  /// Returns the node of the NET with a device number in `machine`; -1: there is none.
  int net(int device) const;
  /// Returns what the search found for one node of the cluster.
  const topo::ChannelPlan& plan() const { return plan_; }
  /// Returns the arrangement of all ranks.
  const topo::Arrangement& whole() const { return whole_; }
  /// Return the arrangements of the ranks of one node (`inside`) and of one rank of each node
  /// (`across`).
  const topo::Arrangement& inside() const { return inside_; }
  const topo::Arrangement& across() const { return across_; }

 private:
  topo::Graph graph_;
  topo::Paths paths_;
  topo::PathRules rules_;
  int nodes_ = 1;
  bool on_cpus_ = false;
  std::vector<int> gpus_;  // [local rank]
  topo::ChannelPlan plan_;
  topo::Arrangement whole_, inside_, across_;
};

}  // namespace ccl::sim
