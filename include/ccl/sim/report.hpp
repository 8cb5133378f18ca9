#pragma once

#include <ccl/types/plan.hpp>

#include <optional>
#include <string>
#include <vector>

namespace ccl::sim {

/// What is asked. The message is the operation's larger buffer, as in the cost model: what a rank
/// contributes to AllReduce, all ranks' shares of AllGather.
struct Options {
  std::optional<Plan> plan;      // else what a communicator would take
  std::optional<double> net_us;  // of a step over the network, else the cost model's
  int root = 0;
  /// Slices that are replayed, at most: of a longer run only the first rounds are (but enough to
  /// fill the pipe), and the rest at the pace of their middle half.
  Index budget = 5'000'000;
  bool every_node = false;  // replay each, even where they repeat
};

/// What one link of the machine carries, on the node where it carries most.
struct LinkLoad {
  std::string name;  // "GPU/0-1000 -> NVS/0-0"
  int node = 0;
  double gbs = 0;
  double bytes = 0;  // payload and flags
  double busy = 0;   // part of the time
};

/// What would happen.
struct Report {
  std::string name;  // "all_reduce/Ring/Simple"
  Index bytes = 0;
  int ranks = 0, nodes = 0;
  double us = 0;
  double bus_gbs = 0;       // NCCL's bus bandwidth
  double sent_bytes = 0;    // by all ranks, payload
  Index steps = 0;          // of one channel of one rank, at most
  Index slices = 0;         // replayed
  int position_classes = 0;     // traces recorded
  int period = 0;           // nodes after which all repeats: so many were replayed; 0: all nodes
  bool extended = false;    // longer than the budget: the pace of its rounds was taken on
  std::vector<Plan> plans;  // of each stage
  std::vector<LinkLoad> links;  // of each link in use, the busiest first

  std::string text() const;
  std::string json() const;
};

}  // namespace ccl::sim
