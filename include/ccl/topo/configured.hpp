#pragma once

#include <ccl/topo/discover.hpp>
#include <ccl/topo/fuse.hpp>
#include <ccl/topo/path.hpp>
#include <ccl/topo/search.hpp>
#include <ccl/topo/xml.hpp>
#include <ccl/types/result.hpp>

#include <optional>

namespace ccl::topo {

/// Returns the fusion rules of CCL_NET_MERGE_LEVEL, CCL_NET_MERGE_POLICY, CCL_NET_FORCE_MERGE and
/// CCL_IB_MERGE_NICS.
[[nodiscard]] Result<FuseRules> configured_fusion();
/// Returns the path in CCL_TOPO_FILE, in which %h stands for the name of this host.
[[nodiscard]] Result<std::string> configured_file();
/// Returns the machine according to the settings, with NICs that belong together fused. It is the
/// detected machine unless CCL_TOPO_FILE names a file. A file without GPUs is a hint that is merged
/// into the detected machine.
[[nodiscard]] Result<LoadedGraph> configured_machine(const DiscoverOptions& options = {});
/// Writes the machine to the file that CCL_TOPO_DUMP_FILE names. Does nothing without the setting.
[[nodiscard]] Result<void> dump_machine(const Graph& graph);

/// Returns the path rules of CCL_P2P_DISABLE, CCL_P2P_LEVEL (a path type, or NCCL's numbers 0 to
/// 5), CCL_SHM_DISABLE and the other settings for paths. CCL_IB_GPU_MEMORY=0 rules out PXN.
[[nodiscard]] Result<PathRules> configured_rules();

/// Rules for the use of NICs.
struct NetRules {
  int cross_nic = 2;  ///< 0: rings and messages stay on one rail; see `SearchOptions`
  NetDevsPolicy policy{};
  bool relays_messages = true;  ///< messages leave by NICs that only PXN reaches, too
};
/// Returns the rules of CCL_CROSS_NIC, CCL_NETDEVS_POLICY and CCL_P2P_PXN_LEVEL.
[[nodiscard]] Result<NetRules> configured_nets();

/// Returns true unless CCL_MNNVL_ENABLE keeps NVLink from joining hosts.
[[nodiscard]] Result<bool> nvlink_joins_hosts();

/// Returns the file of CCL_GRAPH_FILE, or nothing without the setting.
[[nodiscard]] Result<std::optional<XmlFile>> configured_graphs();
/// Replaces the graphs of `plan` by those of the file that have channels. `machine` is that of the
/// search. Fails if there are none.
[[nodiscard]] Result<void> take_graphs(ChannelPlan& plan, const XmlFile& file,
                                       const Graph& machine);
/// Returns the result of a search. Graphs in the file of CCL_GRAPH_FILE replace those of the
/// search.
[[nodiscard]] Result<ChannelPlan> configured_channels(const Graph& graph, const Paths& paths,
                                                      int ranks);
/// Writes the graphs to the file that CCL_GRAPH_DUMP_FILE names. Does nothing without the setting.
[[nodiscard]] Result<void> dump_channels(const ChannelPlan& plan, const Graph& graph);

}  // namespace ccl::topo
