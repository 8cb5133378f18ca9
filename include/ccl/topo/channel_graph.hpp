#pragma once

#include <ccl/types/result.hpp>
#include <ccl/topo/graph.hpp>
#include <ccl/topo/xml.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace ccl::topo {

/// Shape that data takes inside a machine. Values are NCCL's.
enum class Pattern : int {
  balanced_tree = 1,  // a chain; the NIC's traffic is split over its first two GPUs
  split_tree = 2,     // a chain; in at the first GPU, out at the second
  tree = 3,           // a chain; in and out at the first GPU
  ring = 4,           // in at the first GPU, out at the last; closed where there is no NIC
  nvls = 5,           // the first GPU heads, all others through the NVSwitch
  collnet_direct = 6  // the first GPU heads, all others straight
};
std::string_view name(Pattern pattern);

/// One channel's way through a machine.
struct ChannelOrder {
  std::vector<int> ranks;
  int net_in = -1;   // device number of the NET it enters by; -1: it stays inside
  int net_out = -1;  // device number of the NET it leaves by

  bool operator==(const ChannelOrder&) const = default;
};

/// What a search found: channels, and what every one of their edges promises.
struct ChannelGraph {
  int id = 0;  // 0 ring, 1 tree, 2 CollNet chain, 3 NVLS, 4 CollNet direct: NCCL's numbers
  Pattern pattern = Pattern::ring;
  float bw_intra = 0;                   // GB/s per channel inside the machine
  float bw_inter = 0;                   // GB/s per channel between machines
  float latency_inter = 0;              // us
  PathType type_intra = PathType::loc;  // the worst used
  PathType type_inter = PathType::loc;
  bool same_channels = true;
  int cross_nic = 0;  // 0: in and out by one NIC; 2: pairs of channels swap NICs
  float hops = 0;     // links crossed, all channels
  std::vector<ChannelOrder> channels;

  int count() const { return static_cast<int>(channels.size()); }
  float total_bw() const { return static_cast<float>(channels.size()) * bw_intra; }
};

/// `<graphs>` in NCCL's schema; GPUs appear by device number.
Element to_xml(const std::vector<ChannelGraph>& graphs, const Graph& machine);
/// Graphs of a file, their GPUs found in `machine`: what a search would have answered.
[[nodiscard]] Result<std::vector<ChannelGraph>> to_channel_graphs(const XmlFile& file,
                                                                  const Graph& machine);

/// One line for the graph, one for each channel that differs from the one before it.
std::string print(const ChannelGraph& graph);

}  // namespace ccl::topo
