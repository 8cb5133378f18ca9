#include "tool.hpp"

#include <ccl/detail/runtime/settings.hpp>
#include <ccl/topo/configured.hpp>
#include <ccl/topo/discover.hpp>

#include <fmt/format.h>

namespace tool {

namespace topo = ccl::topo;
using topo::NodeType;

void Source::add_options(CLI::App& command) {
  command.add_option("--xml", xml, "topology file; else this machine");
  command.add_option("--hint", hint, "vendor's file to lay over it");
  command.add_option("--nodes", nodes, "number of such machines")->check(CLI::Range(1, 65536));
  command.add_option("--ranks", ranks, "CPU ranks on a machine without GPUs (4)")
      ->check(CLI::Range(1, 1024));
  command.add_flag("--fabric", fabric, "the machines are on one NVLink fabric");
  command.add_flag("--time", time, "tell on stderr how long each part takes");
  command.add_option("--merge", merge, "NICs that count as one: LOC, PORT, PIX, PXB, PHB or SYS")
      ->check(CLI::IsMember({"LOC", "PORT", "PIX", "PXB", "PHB", "SYS"}, CLI::ignore_case));
  command.add_flag("--no-p2p", no_p2p, "as with P2P disabled");
}

void Source::add_cluster_options(CLI::App& command) {
  joins_hosts = true;
  add_options(command);
  command
      .add_option("--domain", domain_nodes,
                  "machines of an NVLink domain; 1: none (all, if the GPUs of the file have one "
                  "fabric)")
      ->check(CLI::Range(1, 65536))
      ->excludes(command.get_option("--fabric"));
}

namespace {

/// Reads the machine and lays the hint over it. Both are checked alone first, so that an error
/// names the file of its line.
ccl::Result<topo::XmlFile> read(const Source& source) {
  topo::XmlFile file;
  if (source.xml.empty()) {
    CCL_TRY(file, timed(source, "detection", [] { return topo::discover(); }));
  } else {
    CCL_TRY(file, topo::read_xml(source.xml));
  }
  if (source.hint.empty()) return file;
  CCL_CHECK(topo::to_graph(file));
  CCL_TRY(const topo::XmlFile hint, topo::read_xml(source.hint));
  CCL_CHECK(topo::to_graph(hint));
  file.root = topo::merge(file.root, hint.root);
  file.name += " with " + source.hint;
  return file;
}

}  // namespace

ccl::Result<Machine> look_at(const Source& source) {
  CCL_CHECK(ccl::detail::check_settings());
  ccl::detail::report_settings(0);
  CCL_TRY(topo::XmlFile file, read(source));
  const bool one_graph = source.fabric && !source.joins_hosts;
  if (one_graph) {
    file.root = topo::join_hosts(
        std::vector<topo::Element>(static_cast<std::size_t>(source.nodes), file.root));
  }
  Machine machine;
  CCL_TRY(machine.loaded, topo::to_graph(file));
  if (const auto& repairs = machine.loaded.repairs;
      !(source.xml.empty() && source.hint.empty()) && !source.lists_repairs && !repairs.empty()) {
    fmt::print(stderr, "{}:{}: {}{}; `ccl_topo lint` says what to do\n", file.name, repairs[0].line,
               repairs[0].what,
               repairs.size() == 1 ? "" : fmt::format(", and {} more such", repairs.size() - 1));
  }
  if (machine.graph().nodes.empty() && !source.lists_repairs) {
    return ccl::fail(ccl::Errc::invalid_argument,
                     fmt::format("{} has no <cpu>, and no <gpu> or <nic> in its place; `ccl_topo "
                                 "lint` lists what was left out",
                                 file.name));
  }
  CCL_TRY(topo::FuseRules fusion, topo::configured_fusion());
  if (!source.merge.empty()) static_cast<void>(topo::parse(source.merge, fusion.level));
  if (source.xml.empty() || !source.merge.empty()) {
    machine.loaded.graph = topo::fuse_nets(machine.graph(), fusion);
  }
  machine.machines = one_graph ? 1 : source.nodes;
  CCL_TRY(const bool joins, topo::nvlink_joins_hosts());
  const int by_option = source.fabric ? source.nodes : source.domain_nodes;
  machine.domain_nodes = joins ? by_option : 1;
  if (machine.graph().of(NodeType::gpu).empty()) {
    topo::add_cpu_ranks(machine.loaded.graph, source.ranks > 0 ? source.ranks : 4);
  }
  CCL_TRY(machine.rules, topo::configured_rules());
  CCL_TRY(machine.nets, topo::configured_nets());
  CCL_TRY(machine.graphs, topo::configured_graphs());
  if (source.no_p2p) machine.rules.p2p_disabled = true;
  return machine;
}

topo::Paths paths_of(const Machine& machine, const Source& source, const std::vector<int>& whole) {
  return timed(source, "paths",
               [&] { return topo::compute_paths(machine.graph(), machine.rules, whole); });
}

ccl::Result<int> find_node(const topo::Graph& graph, const std::string& text) {
  std::vector<int> of_name;  // NICs; ports of a card have one name
  for (int n = 0; n < static_cast<int>(graph.nodes.size()); ++n) {
    const topo::Node& node = graph.nodes[n];
    if (graph.label(n) == text) return n;
    if (node.type == NodeType::gpu && std::to_string(node.gpu.rank) == text) return n;
    if (node.type != NodeType::net) continue;
    if (fmt::format("net{}", node.net.dev) == text) return n;
    const bool of_port = fmt::format("{}:{}", node.net.name, node.net.port) == text;
    if (node.net.name == text || of_port) of_name.push_back(n);
  }
  if (of_name.size() == 1) return of_name.front();
  if (!of_name.empty()) {
    std::string all;
    for (const int n : of_name) {
      const topo::Node::Net& net = graph.nodes[n].net;
      all += fmt::format("{}net{} (port {})", all.empty() ? "" : ", ", net.dev, net.port);
    }
    return ccl::fail(
        ccl::Errc::invalid_argument,
        fmt::format("{} NICs are called {}; name one as {}", of_name.size(), text, all));
  }
  return ccl::fail(
      ccl::Errc::invalid_argument,
      fmt::format("no node {} (neither rank, nor NIC, nor name as `show` prints it); there are {}",
                  text, nodes_of(graph)));
}

std::string nodes_of(const topo::Graph& graph) {
  constexpr std::size_t most = 16;  // nodes of a kind; a longer list is cut
  const auto list = [&](NodeType type, const char* kind, auto&& name) {
    const std::vector<int> nodes = graph.of(type);
    std::string all = nodes.empty() ? fmt::format("no {}", kind) : kind;
    for (std::size_t i = 0; i < nodes.size() && i < most; ++i) {
      all += " " + name(graph.nodes[std::size_t(nodes[i])]);
    }
    return nodes.size() > most ? all + fmt::format(" ... ({})", nodes.size()) : all;
  };
  const std::string ranks = list(
      NodeType::gpu, "ranks", [](const topo::Node& node) { return std::to_string(node.gpu.rank); });
  const std::string nics = list(NodeType::net, "NICs", [](const topo::Node& node) {
    const std::string name = fmt::format("net{}", node.net.dev);
    return node.net.name.empty() || node.net.name == name
               ? name
               : fmt::format("{} ({})", name, node.net.name);
  });
  if (graph.nodes.empty()) return ranks + ", " + nics;
  return fmt::format("{}, {}, and names such as {}", ranks, nics, graph.label(0));
}

void add_format(CLI::App& command, std::string& format, const std::vector<std::string>& values) {
  format = values.front();
  std::string list;
  for (const std::string& value : values) list += (list.empty() ? "" : ", ") + value;
  command.add_option("--format", format, list)->check(CLI::IsMember(values));
}

}  // namespace tool
