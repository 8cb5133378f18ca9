#pragma once

#include <ccl/types/result.hpp>
#include <ccl/topo/discover.hpp>
#include <ccl/topo/fuse.hpp>
#include <ccl/topo/path.hpp>
#include <ccl/topo/search.hpp>
#include <ccl/topo/xml.hpp>

namespace ccl::topo {

/// CCL_NET_MERGE_LEVEL, CCL_NET_MERGE_POLICY, CCL_NET_FORCE_MERGE and CCL_IB_MERGE_NICS.
[[nodiscard]] Result<FuseRules> configured_fusion();
/// The machine as the settings want it: the file that CCL_TOPO_FILE names, laid over what is
/// detected if it is a hint (no GPUs in it); without the setting, what is detected. NICs that
/// belong together are fused.
[[nodiscard]] Result<LoadedGraph> configured_machine(const DiscoverOptions& options = {});
/// Writes the machine where CCL_TOPO_DUMP_FILE says, if it does.
[[nodiscard]] Result<void> dump_machine(const Graph& graph);

/// CCL_P2P_DISABLE, CCL_P2P_LEVEL (a path type, or NCCL's numbers 0 to 5) and CCL_SHM_DISABLE.
[[nodiscard]] Result<PathRules> configured_rules();

/// What a search finds, except for graphs that the file of CCL_GRAPH_FILE holds: those stand as
/// they are.
[[nodiscard]] Result<ChannelPlan> configured_channels(const Graph& graph, const Paths& paths,
                                                      int ranks);
/// Writes the graphs where CCL_GRAPH_DUMP_FILE says, if it does.
[[nodiscard]] Result<void> dump_channels(const ChannelPlan& plan, const Graph& graph);

}  // namespace ccl::topo
