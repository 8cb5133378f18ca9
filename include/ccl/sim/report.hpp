#pragma once

#include <ccl/types/plan.hpp>

#include <optional>
#include <string>
#include <vector>

namespace ccl::sim {

/// Options of a simulation. The message is the operation's larger buffer, as in the cost model: one
/// rank's contribution to AllReduce, the shares of all ranks of AllGather and AllToAll, the message
/// of SendRecv.
struct Options {
  std::optional<Plan> plan;      ///< unset: the plan of a communicator
  std::optional<double> net_us;  ///< us of a step over the network; unset: that of the cost model
  int root = 0;
  int distance = 1;  ///< of SendRecv: each rank sends to the rank so many ahead
  /// Maximum number of replayed slices. Of a longer run only the first rounds are replayed, but
  /// enough to fill the pipeline. The rest is assumed to run at the pace of their middle half.
  Index budget = 5'000'000;
  bool every_node = false;  ///< true: replays each node, even if nodes repeat
};

/// Load of one link of the machine, on the node with the largest load.
struct LinkLoad {
  std::string name;  ///< "GPU/0-1000 -> NVS/0-0"
  int node = 0;
  double gbs = 0;
  double bytes = 0;  ///< bytes of payload and flags
  double busy = 0;   ///< fraction of the time, 0 to 1
};

/// Bytes that a NIC sends to the network and receives from it, as `LinkLoad` counts them.
struct NicLoad {
  int node = 0;
  int device = 0;  ///< number of its NET in the machine
  double sent = 0, received = 0;
};

/// Result of a simulation.
struct Report {
  std::string name;  ///< "all_reduce/Ring/Simple"
  Index bytes = 0;
  int ranks = 0, nodes = 0;
  int domain_nodes = 1;  ///< nodes of an NVLink domain; 1: there are none
  double us = 0;
  double bus_gbs = 0;        ///< GB/s, NCCL's bus bandwidth
  double sent_bytes = 0;     ///< payload bytes sent by all ranks
  Index steps = 0;           ///< steps of one channel of one rank, at most
  Index slices = 0;          ///< slices that were replayed
  int position_classes = 0;  ///< number of recorded traces
  int period = 0;  ///< nodes after which the pattern repeats; so many were replayed; 0: all nodes
  bool extended = false;  ///< true: longer than the budget, so the pace of its rounds was extended
  std::vector<Plan> plans;      ///< plan of each stage
  std::vector<LinkLoad> links;  ///< links in use, the busiest first
  std::vector<NicLoad> nics;    ///< NICs in use of the replayed nodes, by node and device

  /// Returns the report as text.
  std::string text() const;
  /// Returns the report as JSON.
  std::string json() const;
};

}  // namespace ccl::sim
