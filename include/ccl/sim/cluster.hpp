#pragma once

#include <ccl/topo/arrange.hpp>
#include <ccl/topo/configured.hpp>
#include <ccl/topo/path.hpp>
#include <ccl/topo/search.hpp>

#include <cstddef>
#include <vector>

namespace ccl::sim {

/// Bytes that land whole between hosts of an NVLink domain, as `P2pTransport` counts on there.
constexpr int domain_line_bytes = 16;

/// Nodes of one kind, joined by a network that is never the bottleneck: a NIC can receive all that
/// another sends. Rank r is GPU r % locals of node r / locals. The ranks of a file that has those
/// of 0 to locals - 1 stay; else its GPUs are numbered in order.
///
/// Nodes may be hosts of NVLink domains. GPUs of a domain reach each other by the NVSwitches of
/// both hosts, with all of their bandwidth.
class Cluster {
 public:
  /// `domain_nodes` that the file decides: all nodes are one domain if its GPUs have one attribute
  /// `fabric`, else none.
  static constexpr int by_file = 0;

  /// Returns a cluster of `nodes` copies of `machine`, of which `domain_nodes` at a time are an
  /// NVLink domain; 1: none. Searches the channels of the machine and joins them over the nodes, as
  /// a communicator with these rules does. `graphs`: the file of CCL_GRAPH_FILE, if any, whose
  /// graphs replace those of the search.
  [[nodiscard]] static Result<Cluster> of(const topo::Graph& machine, int nodes,
                                          const topo::PathRules& rules = {},
                                          const topo::NetRules& nets = {},
                                          int domain_nodes = by_file,
                                          const topo::XmlFile* graphs = nullptr);

  int nodes() const { return nodes_; }
  /// Returns the nodes of an NVLink domain; 1: there are none.
  int domain_nodes() const { return domain_nodes_; }
  /// True if NVLink joins two nodes.
  bool joined(int node, int other) const { return node / domain_nodes_ == other / domain_nodes_; }
  /// True if some ranks reach each other over the network only.
  bool networked() const { return nodes_ > domain_nodes_; }
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
  /// Returns the NVSwitch of `machine` by which a local rank reaches other hosts of its domain; -1:
  /// there is none.
  int nvswitch(int local) const;
  /// Returns what the search found for one node of the cluster.
  const topo::ChannelPlan& plan() const { return plan_; }
  /// Returns the arrangement of all ranks.
  const topo::Arrangement& whole() const { return whole_; }
  /// Return the arrangements of the ranks of one node (`inside`) and of one rank of each node
  /// (`across`).
  const topo::Arrangement& inside() const { return inside_; }
  const topo::Arrangement& across() const { return across_; }

 private:
  /// Fails if some GPUs of a node reach each other over the network alone.
  [[nodiscard]] Result<void> check_inside() const;
  /// Sets the size of the NVLink domains.
  [[nodiscard]] Result<void> join_nodes(int domain_nodes);

  topo::Graph graph_;
  topo::Paths paths_;
  topo::PathRules rules_;
  int nodes_ = 1, domain_nodes_ = 1;
  bool on_cpus_ = false;
  std::vector<int> gpus_;  // [local rank]
  topo::ChannelPlan plan_;
  topo::Arrangement whole_, inside_, across_;
};

}  // namespace ccl::sim
