#pragma once

#include <ccl/topo/arrange.hpp>
#include <ccl/topo/path.hpp>
#include <ccl/topo/search.hpp>

#include <cstddef>
#include <vector>

namespace ccl::sim {

/// Machines of one kind, side by side. Between their NICs is a network that is never the
/// bottleneck: what a NIC sends, another can take. Rank r is GPU r % locals of node r / locals.
class Cluster {
 public:
  /// Searches the machine's channels and joins them over the nodes, as a communicator does.
  static Result<Cluster> of(const topo::Graph& machine, int nodes,
                            const topo::PathRules& rules = {});

  int nodes() const { return nodes_; }
  int locals() const { return int(gpus_.size()); }
  int ranks() const { return nodes_ * locals(); }
  bool on_cpus() const { return on_cpus_; }
  const topo::Graph& machine() const { return graph_; }
  const topo::Paths& paths() const { return paths_; }
  const topo::PathRules& rules() const { return rules_; }
  /// Node of a local rank in `machine`.
  int gpu(int local) const { return gpus_[std::size_t(local)]; }
  /// Of all ranks.
  const topo::Arrangement& whole() const { return whole_; }
  /// Of one node's ranks by themselves, and of one rank of each node.
  const topo::Arrangement& inside() const { return inside_; }
  const topo::Arrangement& across() const { return across_; }

 private:
  topo::Graph graph_;
  topo::Paths paths_;
  topo::PathRules rules_;
  int nodes_ = 1;
  bool on_cpus_ = false;
  std::vector<int> gpus_;
  topo::Arrangement whole_, inside_, across_;
};

}  // namespace ccl::sim
