#include <ccl/comm/log.hpp>
#include <ccl/detail/runtime/host_id.hpp>
#include <ccl/detail/runtime/settings.hpp>
#include <ccl/topo/configured.hpp>
#include <ccl/topo/discover.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <optional>
#include <string>
#include <utility>

#include "settings/report.hpp"
#include "topo/graph/p2p_path.hpp"
#include <unistd.h>

namespace ccl::topo {
namespace {
using ccl::detail::variable_of;

/// Adds to an error in a file the name of the variable that names the file.
template <class T>
Result<T> by(const char* setting, Result<T> result) {
  if (!result) {
    result.error().what = fmt::format("{}: {}", variable_of(setting), result.error().what);
  }
  return result;
}

/// Writes what is for diagnosis only, so that a failure ends nothing.
void write_dump(const char* setting, const std::string& path, const std::string& text) {
  const auto written = by(setting, write_file(path, text));
  if (!written) log_warn(LogPart::graph, "{}", written.error().what);
}

/// True if the file cannot be opened and NCCL, whose variable names it, would go on without.
bool goes_on_without(const std::string& path) {
  const std::string variable = variable_of("TOPO_FILE");
  if (!variable.starts_with("NCCL_") || ::access(path.c_str(), R_OK) == 0) return false;
  log_warn(LogPart::graph, "{}: cannot read {} ({}); the topology is detected", variable, path,
           std::strerror(errno));
  return true;
}

/// Warns that a file changes nothing.
void warn_of_nothing(const std::string& path, const std::vector<Repair>& repairs) {
  const Repair none{1, "it is empty"};
  const Repair& first = repairs.empty() ? none : repairs.front();
  log_warn(LogPart::graph,
           "{}: {} describes no CPU, GPU or NIC (line {}: {}), so the topology is detected",
           variable_of("TOPO_FILE"), path, first.line, first.what);
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

Result<std::string> configured_file() {
  CCL_TRY(std::string path, ccl::detail::setting_text("TOPO_FILE"));
  for (std::size_t at = path.find("%h"); at != path.npos; at = path.find("%h", at)) {
    const std::string host = ccl::detail::host_name();
    path.replace(at, 2, host);
    at += host.size();
  }
  return path;
}

Result<LoadedGraph> configured_machine(const DiscoverOptions& options) {
  CCL_TRY(std::string given, configured_file());
  if (!given.empty() && goes_on_without(given)) given.clear();
  CCL_TRY(const FuseRules fusion, configured_fusion());
  bool detected = given.empty();
  XmlFile file;
  if (given.empty()) {
    CCL_TRY(file, discover(options));
  } else {
    CCL_TRY(file, by("TOPO_FILE", read_xml(given)));
    CCL_TRY(const LoadedGraph alone, by("TOPO_FILE", to_graph(file)));
    if (alone.graph.nodes.empty()) warn_of_nothing(given, alone.repairs);
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
  write_dump("TOPO_DUMP_FILE", dump, print_xml(to_xml(graph)));
  return {};
}

Result<PathRules> configured_rules() {
  PathRules rules;
  CCL_TRY(rules.p2p_disabled, ccl::detail::setting_flag("P2P_DISABLE"));
  CCL_TRY(rules.shm_disabled, ccl::detail::setting_flag("SHM_DISABLE"));
  CCL_TRY(rules.p2p_level, ccl::detail::p2p_level());
  CCL_TRY(rules.nvb_disabled, ccl::detail::setting_flag("NVB_DISABLE"));
  CCL_TRY(const bool no_pxn, ccl::detail::setting_flag("PXN_DISABLE"));
  // A rank keeps its slots on the GPU next to the NIC, so it must be able to.
  CCL_TRY(const Index gpu_memory, ccl::detail::setting_integer("IB_GPU_MEMORY"));
  rules.pxn = !no_pxn && gpu_memory != 0;
  CCL_TRY(rules.gdr_level, ccl::detail::gdr_level());
  CCL_TRY(const Index read, ccl::detail::setting_integer("NET_GDR_READ"));
  if (read >= 0) rules.gdr_read = read != 0;
  return rules;
}

Result<bool> nvlink_joins_hosts() {
  CCL_TRY(const Index enabled, ccl::detail::setting_integer("MNNVL_ENABLE"));
  return enabled != 0;
}

Result<NetRules> configured_nets() {
  NetRules rules;
  CCL_TRY(const Index cross, ccl::detail::setting_integer("CROSS_NIC"));
  CCL_TRY(const std::string policy, ccl::detail::setting_text("NETDEVS_POLICY"));
  rules.cross_nic = static_cast<int>(cross);
  CCL_TRY(const Index pxn_level, ccl::detail::setting_integer("P2P_PXN_LEVEL"));
  rules.relays_messages = pxn_level > 0;
  if (parse(policy, rules.policy)) return rules;
  const std::string variable = variable_of("NETDEVS_POLICY");
  const std::string text = fmt::format(
      "{}={} does not fit; it takes AUTO, ALL, or MAX: and a number from 1", variable, policy);
  if (!variable.starts_with("NCCL_")) return fail(Errc::bad_setting, text);
  log_warn(LogPart::graph, "{}; AUTO counts", text);
  rules.policy = {};
  return rules;
}

Result<std::optional<XmlFile>> configured_graphs() {
  CCL_TRY(const std::string given, ccl::detail::setting_text("GRAPH_FILE"));
  if (given.empty()) return std::optional<XmlFile>{};
  CCL_TRY(XmlFile file, by("GRAPH_FILE", read_xml(given)));
  return std::optional{std::move(file)};
}

Result<void> take_graphs(ChannelPlan& plan, const XmlFile& file, const Graph& machine) {
  CCL_TRY(const std::vector<ChannelGraph> graphs,
          by("GRAPH_FILE", to_channel_graphs(file, machine)));
  ChannelGraph* const by_id[] = {&plan.ring, &plan.tree, &plan.collnet_chain, &plan.nvls,
                                 &plan.collnet_direct};
  bool any = false;
  for (const ChannelGraph& read : graphs) {
    if (read.channels.empty() || read.id < 0 || read.id >= int(std::size(by_id))) continue;
    *by_id[read.id] = read;
    any = true;
  }
  if (any) return {};
  return fail(Errc::invalid_argument,
              fmt::format("{}: {} has no <graph> of id 0 to 4 with channels, so that nothing of "
                          "the search would be replaced; correct it or unset it",
                          variable_of("GRAPH_FILE"), file.name));
}

Result<ChannelPlan> configured_channels(const Graph& graph, const Paths& paths, int ranks) {
  CCL_TRY(const NetRules nets, configured_nets());
  ChannelPlan plan = search_all(graph, paths, ranks, nets.cross_nic);
  CCL_TRY(const std::optional<XmlFile> given, configured_graphs());
  if (given) CCL_CHECK(take_graphs(plan, *given, graph));
  return plan;
}

Result<void> dump_channels(const ChannelPlan& plan, const Graph& graph) {
  CCL_TRY(const std::string dump, ccl::detail::setting_text("GRAPH_DUMP_FILE"));
  if (dump.empty()) return {};
  const auto graphs =
      to_xml({plan.ring, plan.tree, plan.collnet_chain, plan.nvls, plan.collnet_direct}, graph);
  write_dump("GRAPH_DUMP_FILE", dump, print_xml(graphs));
  return {};
}

}  // namespace ccl::topo
