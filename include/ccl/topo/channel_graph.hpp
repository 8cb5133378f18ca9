#pragma once

#include <ccl/topo/graph.hpp>
#include <ccl/topo/xml.hpp>
#include <ccl/types/result.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace ccl::topo {

/// Shape of the data flow inside a machine. Values are those of NCCL.
enum class Pattern : int {
  balanced_tree = 1,  ///< a chain; the first two GPUs share the NIC's traffic
  split_tree = 2,     ///< a chain; enters at the first GPU, leaves at the second
  tree = 3,           ///< a chain; enters and leaves at the first GPU
  ring = 4,           ///< enters at the first GPU, leaves at the last; closed if there is no NIC
  nvls = 5,           ///< the first GPU is the head, all others connect through the NVSwitch
  collnet_direct = 6  ///< the first GPU is the head, all others connect directly
};
/// Returns the name of the pattern.
std::string_view name(Pattern pattern);

/// Route of one channel through a machine.
struct ChannelOrder {
  std::vector<int> ranks;
  int net_in = -1;   ///< device number of the NET by which it enters; -1: it stays inside
  int net_out = -1;  ///< device number of the NET by which it leaves; -1: it stays inside

  bool operator==(const ChannelOrder&) const = default;
};

/// Channels that a search found, and the properties that all their edges have.
struct ChannelGraph {
  int id = 0;  ///< NCCL's numbers: 0 ring, 1 tree, 2 CollNet chain, 3 NVLS, 4 CollNet direct
  Pattern pattern = Pattern::ring;
  float bw_intra = 0;                   ///< GB/s per channel inside the machine
  float bw_inter = 0;                   ///< GB/s per channel between machines
  float latency_inter = 0;              ///< us
  PathType type_intra = PathType::loc;  ///< worst type in use
  PathType type_inter = PathType::loc;
  bool same_channels = true;
  int cross_nic = 0;  ///< 0: enters and leaves by one NIC; 2: pairs of channels swap NICs
  float hops = 0;     ///< links crossed, summed over all channels
  std::vector<ChannelOrder> channels;

  /// Returns the number of channels.
  int count() const { return static_cast<int>(channels.size()); }
  /// Returns the GB/s of all channels inside the machine.
  float total_bw() const { return static_cast<float>(channels.size()) * bw_intra; }
};

/// Returns `<graphs>` in NCCL's schema. GPUs appear by device number.
Element to_xml(const std::vector<ChannelGraph>& graphs, const Graph& machine);
/// Returns the graphs of a file with their GPUs located in `machine`, like the result of a search.
/// Fails if `machine` has no such GPU or NIC.
[[nodiscard]] Result<std::vector<ChannelGraph>> to_channel_graphs(const XmlFile& file,
                                                                  const Graph& machine);

/// Returns one line for the graph, and one for each channel that differs from the one before it.
std::string print(const ChannelGraph& graph);

}  // namespace ccl::topo
