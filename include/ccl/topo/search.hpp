#pragma once

#include <ccl/topo/channel_graph.hpp>
#include <ccl/topo/path.hpp>

#include <cstdint>
#include <string>

namespace ccl::topo {

/// What to look for.
struct SearchOptions {
  Pattern pattern = Pattern::ring;
  int id = 0;
  int min_channels = 1;
  int max_channels = 32;
  bool between = false;  // other machines take part: every channel enters and leaves by a NIC
  bool collnet = false;  // only NICs that reduce in the network will do
  int cross_nic = 2;     // 0 never, 1 always allowed, 2 only if nothing else is as good
  // Steps of the search, so that answers do not depend on the machine's speed.
  std::int64_t budget = 1 << 16;               // until the first answer
  std::int64_t budget_same_channels = 1 << 8;  // per try
  std::int64_t budget_tree = 1 << 12;
  std::int64_t budget_try = 1 << 14;
};

/// Finds channels: tries speeds from high to low; at each speed first equal, then different
/// channels, then simpler trees, worse paths inside, worse paths to NICs, and crossing NICs; at the
/// end raises the speed as far as it goes. Never empty for rings and plain trees: the last resort
/// is the order of ranks at 0.1 GB/s.
ChannelGraph search(const Graph& graph, const Paths& paths, const SearchOptions& options);

/// The graphs of a communicator.
struct ChannelPlan {
  ChannelGraph ring, tree, collnet_chain, nvls, collnet_direct;
};
/// `ranks`: of the whole communicator; more than the machine has means that others take part.
/// CollNet and NVLS graphs say what would be there if the hardware is.
ChannelPlan search_all(const Graph& graph, const Paths& paths, int ranks);

/// Widest path of any GPU that matters, and the sum of one GPU's links: no channel is wider than
/// the first, and all together are no wider than the second.
struct Limits {
  float widest = 0, total = 0;  // GB/s
};
Limits limits(const Graph& graph, const Paths& paths, bool between);

/// What is wrong with the graph's claims; empty if nothing: every channel holds each rank once,
/// every edge is of the claimed type or better, and no link carries more than it can.
std::string check(const ChannelGraph& found, const Graph& graph, const Paths& paths);

}  // namespace ccl::topo
