#include <ccl/detail/runtime/settings.hpp>
#include <ccl/topo/configured.hpp>
#include <ccl/topo/discover.hpp>

#include <fmt/format.h>

#include <algorithm>

#include "topo/graph/p2p_path.hpp"

namespace ccl::topo {
namespace {
/// Adds to an error in a file the name of the setting that names the file.
template <class T>
Result<T> by(const char* setting, Result<T> result) {
  if (!result) result.error().what = fmt::format("{}: {}", setting, result.error().what);
  return result;
}
}  // namespace

Result<FuseRules> configured_fusion() {
  FuseRules rules;
  CCL_TRY(const std::string level, ccl::detail::setting_text("NET_MERGE_LEVEL"));
  CCL_TRY(const std::string forced, ccl::detail::setting_text("NET_FORCE_MERGE"));
  CCL_TRY(const std::string policy, ccl::detail::setting_text("NET_MERGE_POLICY"));
  CCL_TRY(const bool cards, ccl::detail::setting_flag("IB_MERGE_NICS"));
  CCL_TRY(rules.forced, parse_groups(forced));
  static_cast<void>(parse(level, rules.level));  // the setting has no other values
  if (!cards && rules.level == FuseLevel::port) rules.level = FuseLevel::none;
  rules.same_rail = policy == "RAIL";
  return rules;
}

Result<LoadedGraph> configured_machine(const DiscoverOptions& options) {
  CCL_TRY(const std::string given, ccl::detail::setting_text("TOPO_FILE"));
  CCL_TRY(const FuseRules fusion, configured_fusion());
  bool detected = given.empty();
  XmlFile file;
  if (given.empty()) {
    CCL_TRY(file, discover(options));
  } else {
    CCL_TRY(file, by("CCL_TOPO_FILE", read_xml(given)));
    CCL_TRY(const LoadedGraph alone, by("CCL_TOPO_FILE", to_graph(file)));
    if (alone.graph.of(NodeType::gpu).empty()) {
      CCL_TRY(const XmlFile found, discover(options));
      file.root = merge(found.root, file.root);
      detected = true;
    }
  }
  CCL_TRY(LoadedGraph loaded, to_graph(file));
  // A complete file is used as it is, unless settings change it.
  if (detected || ccl::detail::setting_given("NET_MERGE_LEVEL") || !fusion.forced.empty()) {
    loaded.graph = fuse_nets(loaded.graph, fusion);
  }
  return loaded;
}

Result<void> dump_machine(const Graph& graph) {
  CCL_TRY(const std::string dump, ccl::detail::setting_text("TOPO_DUMP_FILE"));
  if (dump.empty()) return {};
  return by("CCL_TOPO_DUMP_FILE", write_file(dump, print_xml(to_xml(graph))));
}

Result<PathRules> configured_rules() {
  PathRules rules;
  CCL_TRY(rules.p2p_disabled, ccl::detail::setting_flag("P2P_DISABLE"));
  CCL_TRY(rules.shm_disabled, ccl::detail::setting_flag("SHM_DISABLE"));
  CCL_TRY(rules.p2p_level, ccl::detail::p2p_level());
  CCL_TRY(rules.nvb_disabled, ccl::detail::setting_flag("NVB_DISABLE"));
  CCL_TRY(const bool no_pxn, ccl::detail::setting_flag("PXN_DISABLE"));
  rules.pxn = !no_pxn;
  return rules;
}

Result<ChannelPlan> configured_channels(const Graph& graph, const Paths& paths, int ranks) {
  ChannelPlan plan = search_all(graph, paths, ranks);
  CCL_TRY(const std::string given, ccl::detail::setting_text("GRAPH_FILE"));
  if (!given.empty()) {
    CCL_TRY(const XmlFile file, by("CCL_GRAPH_FILE", read_xml(given)));
    CCL_TRY(const std::vector<ChannelGraph> graphs,
            by("CCL_GRAPH_FILE", to_channel_graphs(file, graph)));
    const auto stands_in = [](const ChannelGraph& read) {
      return !read.channels.empty() && read.id >= 0 && read.id <= 4;
    };
    if (std::none_of(graphs.begin(), graphs.end(), stands_in)) {
      return fail(
          Errc::invalid_argument,
          fmt::format("CCL_GRAPH_FILE: {} has no <graph> of id 0 to 4 with channels, so that "
                      "nothing of the search would be replaced; correct it or unset it",
                      given));
    }
    for (const ChannelGraph& read : graphs) {
      if (read.channels.empty()) continue;
      switch (read.id) {
        case 0:
          plan.ring = read;
          break;
        case 1:
          plan.tree = read;
          break;
        case 2:
          plan.collnet_chain = read;
          break;
        case 3:
          plan.nvls = read;
          break;
        case 4:
          plan.collnet_direct = read;
          break;
        default:
          break;
      }
    }
  }
  return plan;
}

Result<void> dump_channels(const ChannelPlan& plan, const Graph& graph) {
  CCL_TRY(const std::string dump, ccl::detail::setting_text("GRAPH_DUMP_FILE"));
  if (dump.empty()) return {};
  const auto graphs =
      to_xml({plan.ring, plan.tree, plan.collnet_chain, plan.nvls, plan.collnet_direct}, graph);
  return by("CCL_GRAPH_DUMP_FILE", write_file(dump, print_xml(graphs)));
}

}  // namespace ccl::topo
