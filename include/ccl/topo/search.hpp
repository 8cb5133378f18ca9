#pragma once

#include <ccl/topo/channel_graph.hpp>
#include <ccl/topo/path.hpp>

#include <cstdint>
#include <string>

namespace ccl::topo {

/// Options of a search for channels.
struct SearchOptions {
  Pattern pattern = Pattern::ring;
  int id = 0;
  int min_channels = 1;
  int max_channels = 32;
  /// true: other machines take part, and each channel enters and leaves by a NIC
  bool between = false;
  bool collnet = false;  ///< true: uses only NICs that reduce in the network
  int cross_nic = 2;     ///< 0: never; 1: always allowed; 2: only without an equal alternative
  // Limits are in steps of the search, so the result does not depend on the machine's speed.
  std::int64_t budget = 1 << 16;               ///< steps until the first result
  std::int64_t budget_same_channels = 1 << 8;  ///< steps per attempt
  std::int64_t budget_tree = 1 << 12;
  std::int64_t budget_try = 1 << 14;
};

/// Searches channels from high to low speed. At each speed it tries equal channels, then different
/// channels, simpler trees, worse paths inside, worse paths to NICs, and crossing NICs. At the end
/// it raises the speed as far as possible. The result is never empty for rings and plain trees: the
/// last resort is the order of ranks at 0.1 GB/s.
ChannelGraph search(const Graph& graph, const Paths& paths, const SearchOptions& options);

/// Channel graphs of a communicator.
struct ChannelPlan {
  ChannelGraph ring, tree, collnet_chain, nvls, collnet_direct;
};
/// Searches all graphs of a communicator of `ranks` ranks. If the machine has fewer ranks, other
/// machines take part. CollNet and NVLS graphs assume that the hardware exists. `cross_nic`: see
/// `SearchOptions`.
ChannelPlan search_all(const Graph& graph, const Paths& paths, int ranks, int cross_nic = 2);

/// Bandwidth limits of channels: the widest path of any relevant GPU, and the sum of one GPU's
/// links. No channel is wider than the first, and all channels together are no wider than the
/// second.
struct Limits {
  float widest = 0, total = 0;  ///< GB/s
};
Limits limits(const Graph& graph, const Paths& paths, bool between);

/// Returns an empty text if the claims of the graph hold, else the defect. The claims are that
/// - every channel holds each rank once,
/// - every edge has the stated type or a better one,
/// - no link carries more than its bandwidth.
std::string check(const ChannelGraph& found, const Graph& graph, const Paths& paths);

}  // namespace ccl::topo
