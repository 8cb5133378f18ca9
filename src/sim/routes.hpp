#pragma once

#include <ccl/algo/cost.hpp>
#include <ccl/sim/cluster.hpp>
#include <ccl/types/result.hpp>

#include <vector>

namespace ccl::detail {

/// Route of a connection between two ranks.
struct SimRoute {
  Path path = Path::nvlink;
  bool direct = true;
  double more_us = 0;      // added latency of the NICs
  std::vector<int> links;  // of the cluster, node after node
  // Route in the receiver's node, if it is another one: from its NIC or its NVSwitch on.
  std::vector<int> links_there{};
};

/// The links of a cluster between any two of its ranks. The cluster must outlive it.
class SimRoutes {
 public:
  /// Nodes beyond the first `span` use the links of nodes among the first.
  SimRoutes(const sim::Cluster& cluster, int span) : cluster_{cluster}, span_{span} {}
  /// Route of one channel's connection.
  Result<SimRoute> between(int from, int to, int channel, topo::EdgeUse use);
  /// Rates of wires of a path, as the chooser takes them.
  Rates rates_of(Path path, Packing packing) const;
  /// Rates of wires inside a node; of these, lanes have the time of a launch and the pace.
  Rates lane_rates(Packing packing) const;

 private:
  int node_of(int rank) const { return rank / cluster_.locals(); }
  int local_of(int rank) const { return rank % cluster_.locals(); }
  /// NIC of one end of an edge; -1: there is none.
  int nic(const topo::NetEnd& end) const;

  const sim::Cluster& cluster_;
  const int span_;
};

}  // namespace ccl::detail
