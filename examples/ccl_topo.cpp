// Shows what ccl sees of a machine, the paths and channels that it chooses, and what is wrong.

#include <ccl/simulate.hpp>
#include <ccl/topo/connect.hpp>
#include <ccl/topo/discover.hpp>
#include <ccl/topo/draw.hpp>
#include <ccl/topo/search.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace topo = ccl::topo;
using topo::NodeType;

namespace {

struct Options {
  std::string xml, hint, format = "text";
  int nodes = 1;
  int ranks = 0;
  bool no_p2p = false;
  std::vector<std::string> ends;
  // simulate
  ccl::sim::Composition what;
  std::uint64_t bytes = std::uint64_t{64} << 20;
  ccl::sim::Options simulation;
  int channels = 0, slots = 0, slice_steps = 0, chunk_steps = 0;
  std::uint64_t slot_bytes = 0;
};

ccl::Result<topo::LoadedGraph> load(const Options& options) {
  topo::XmlFile file;
  if (options.xml.empty()) {
    CCL_TRY(file, topo::discover());
  } else {
    CCL_TRY(file, topo::read_xml(options.xml));
  }
  if (!options.hint.empty()) {
    CCL_TRY(const topo::XmlFile hint, topo::read_xml(options.hint));
    file.root = topo::merge(file.root, hint.root);
  }
  CCL_TRY(topo::LoadedGraph loaded, topo::to_graph(file));
  if (loaded.graph.of(NodeType::gpu).empty()) {
    topo::add_cpu_ranks(loaded.graph, options.ranks > 0 ? options.ranks : 4);
  }
  return loaded;
}

void show(const topo::Graph& graph, int node, int depth) {
  const topo::Node& n = graph.nodes[node];
  std::string what;
  if (n.type == NodeType::gpu) {
    what =
        fmt::format("rank {} {}", n.gpu.rank,
                    n.gpu.on_cpu ? "on CPU" : fmt::format("sm_{} gdr {:d}", n.gpu.sm, n.gpu.gdr));
  }
  if (n.type == NodeType::net) {
    what = fmt::format("{} {:g} Gb/s gdr {:d}", n.net.name, n.net.bw * 8, n.net.gdr);
  }
  if (n.type == NodeType::cpu) what = fmt::format("{} {}", n.cpu.vendor_name, n.cpu.affinity);
  fmt::print("{:{}}{} {}\n", "", depth * 2, graph.label(node), what);
  for (const int l : n.out) {
    const topo::Link& link = graph.links[l];
    if (link.to == n.parent || graph.nodes[link.to].parent == node) continue;
    fmt::print("{:{}}+ {} {:g} GB/s -> {}\n", "", depth * 2 + 2, topo::name(link.type), link.bw,
               graph.label(link.to));
  }
  for (int child = 0; child < static_cast<int>(graph.nodes.size()); ++child) {
    if (graph.nodes[child].parent != node) continue;
    show(graph, child, depth + 1);
  }
}

ccl::Result<int> find(const topo::Graph& graph, const std::string& text) {
  for (int n = 0; n < static_cast<int>(graph.nodes.size()); ++n) {
    const topo::Node& node = graph.nodes[n];
    if (graph.label(n) == text) return n;
    if (node.type == NodeType::gpu && std::to_string(node.gpu.rank) == text) return n;
    if (node.type == NodeType::net &&
        (node.net.name == text || fmt::format("net{}", node.net.dev) == text)) {
      return n;
    }
  }
  return ccl::fail(
      ccl::Errc::invalid_argument,
      fmt::format("no node {} (neither rank, nor NIC, nor name as `show` prints it); try "
                  "0, net0 or GPU/0-99000",
                  text));
}

ccl::Result<void> explain(const topo::Graph& graph, const topo::Paths& paths,
                          const topo::PathRules& rules, const Options& options) {
  CCL_TRY(const int a, find(graph, options.ends[0]));
  CCL_TRY(const int b, find(graph, options.ends[1]));
  const topo::Path& path = paths.at(a, b);
  if (!path.reaches()) {
    fmt::print("{} does not reach {}.\n", graph.label(a), graph.label(b));
    return {};
  }
  fmt::print("{} {} ({:g} GB/s, {})\n", graph.label(a), topo::print_path(graph, path), path.bw,
             topo::name(path.type));
  const topo::Path& wired = paths.wired(a, b);
  if (wired.links != path.links) {
    fmt::print("as wired: {} ({:g} GB/s, {})\n", topo::print_path(graph, wired), wired.bw,
               topo::name(wired.type));
  }
  const NodeType first = graph.nodes[a].type, second = graph.nodes[b].type;
  if (first == NodeType::gpu && second == NodeType::gpu) {
    const topo::P2pAnswer p2p = topo::check_p2p(graph, paths, rules, a, b);
    fmt::print("P2P: {} ({})\n", p2p.allowed ? "yes" : "no", p2p.why);
    if (p2p.relay >= 0) fmt::print("relayed by {}\n", graph.label(p2p.relay));
    if (p2p.read) fmt::print("the receiver reads instead of being written to\n");
    const bool net = topo::net_beats_p2p(graph, paths, a, b);
    const char* transport = p2p.allowed && !(net && path.type > topo::PathType::nvb) ? "P2P"
                            : net                                                    ? "NET"
                                                                                     : "SHM";
    fmt::print("transport: {}{}\n", transport,
               net && !p2p.allowed ? " (both NICs are faster than the way through the CPU)" : "");
  }
  if ((first == NodeType::gpu && second == NodeType::net) ||
      (first == NodeType::net && second == NodeType::gpu)) {
    const int gpu = first == NodeType::gpu ? a : b;
    const int net = first == NodeType::gpu ? b : a;
    for (const bool read : {false, true}) {
      const topo::GdrAnswer gdr = topo::check_gdr(graph, paths, rules, gpu, net, read);
      fmt::print("GPU direct RDMA {}: {} ({})\n", read ? "for sending" : "for receiving",
                 gdr.allowed ? "yes" : "no", gdr.why);
    }
    const int own = topo::local_net(graph, paths, gpu, 0);
    if (own >= 0) fmt::print("NIC of {}: {}\n", graph.label(gpu), graph.nodes[own].net.name);
  }
  return {};
}

ccl::Result<void> channels(const std::string& what, const topo::Graph& graph,
                           const topo::Paths& paths, const Options& options) {
  const int local = static_cast<int>(graph.of(NodeType::gpu).size());
  topo::ChannelPlan plan = topo::search_all(graph, paths, local * options.nodes);
  const topo::ChannelGraph& wanted = what == "rings" ? plan.ring : plan.tree;
  if (options.format == "xml") {
    fmt::print("{}", topo::print_xml(topo::to_xml(
                         {plan.ring, plan.tree, plan.collnet_chain, plan.nvls, plan.collnet_direct},
                         graph)));
    return {};
  }
  if (options.format == "svg") {
    fmt::print("{}", what == "trees" && options.nodes > 1 ? topo::trees_svg(options.nodes)
                                                          : topo::to_svg(wanted));
    return {};
  }
  const std::size_t both = std::min(plan.ring.channels.size(), plan.tree.channels.size());
  plan.ring.channels.resize(both);
  plan.tree.channels.resize(both);
  topo::JoinOptions join;
  join.cross_nic = plan.ring.cross_nic;
  join.extra_copies = topo::copies(plan.ring, options.nodes, graph.min_sm());
  CCL_TRY(const topo::JoinedChannels joined,
          topo::join(topo::replicate(plan.ring, plan.tree, options.nodes), local * options.nodes,
                     join));
  if (options.format == "json") {
    fmt::print("{}", topo::to_json(joined));
    return {};
  }
  fmt::print("{}", topo::print(wanted));
  fmt::print("over {} machine{}: {} channels\n", options.nodes, options.nodes == 1 ? "" : "s",
             joined.count());
  for (int c = 0; c < joined.count(); ++c) {
    if (what == "rings") {
      fmt::print("  {:>2}: {}\n", c, fmt::join(joined.rings[c], " "));
      continue;
    }
    fmt::print("  {:>2}:", c);
    for (std::size_t r = 0; r < joined.trees[c].size(); ++r) {
      fmt::print(
          " {}<-{}",
          joined.trees[c][r].up < 0 ? std::string("root") : std::to_string(joined.trees[c][r].up),
          r);
    }
    fmt::print("\n");
  }
  return {};
}

/// Every composition that was asked for, the fastest in full.
ccl::Result<void> simulate(const topo::Graph& graph, const topo::PathRules& rules,
                           const Options& options) {
  CCL_TRY(const auto all, ccl::sim::compositions(options.what));
  CCL_TRY(const auto cluster, ccl::sim::Cluster::of(graph, options.nodes, rules));
  ccl::sim::Options how = options.simulation;
  if (options.channels > 0) {
    how.plan.emplace();
    how.plan->channels = options.channels;
    if (options.slots > 0) how.plan->slot_count = options.slots;
    how.plan->slot_bytes = ccl::Index(options.slot_bytes);
    if (options.slice_steps > 0) how.plan->slice_steps = options.slice_steps;
    how.plan->chunk_steps = std::max(options.chunk_steps, how.plan->slice_steps);
  }
  std::vector<ccl::sim::Report> reports;
  for (const auto& composition : all) {
    CCL_TRY(auto report, ccl::sim::simulate(cluster, composition, ccl::Index(options.bytes), how));
    reports.push_back(std::move(report));
  }
  std::stable_sort(reports.begin(), reports.end(),
                   [](const auto& a, const auto& b) { return a.us < b.us; });
  if (options.format == "json") {
    fmt::print("[");
    for (std::size_t i = 0; i < reports.size(); ++i) {
      fmt::print("{}{}", i == 0 ? "" : ",\n ", reports[i].json());
    }
    fmt::print("]\n");
    return {};
  }
  fmt::print("{}", reports[0].text());
  for (std::size_t i = 1; i < reports.size(); ++i) {
    fmt::print("{:<28} {:12.1f} us {:9.2f} GB/s\n", reports[i].name, reports[i].us,
               reports[i].bus_gbs);
  }
  return {};
}

ccl::Result<void> run(const std::string& what, const Options& options) {
  CCL_TRY(const topo::LoadedGraph loaded, load(options));
  const topo::Graph& graph = loaded.graph;
  topo::PathRules rules;
  rules.p2p_disabled = options.no_p2p;
  if (what == "simulate") return simulate(graph, rules, options);
  const topo::Paths paths = topo::compute_paths(graph, rules);
  if (what == "lint") {
    const auto remarks = topo::lint(loaded, options.xml.empty());
    for (const topo::Remark& remark : remarks) {
      fmt::print("- {}\n    {}\n", remark.problem, remark.advice);
    }
    if (remarks.empty()) fmt::print("nothing to remark\n");
    return {};
  }
  if (what == "explain") return explain(graph, paths, rules, options);
  if (what == "rings" || what == "trees") return channels(what, graph, paths, options);
  if (options.format == "json") {
    fmt::print("{}", topo::to_json(graph, what == "paths" ? &paths : nullptr));
  } else if (options.format == "xml") {
    fmt::print("{}", topo::print_xml(topo::to_xml(graph)));
  } else if (options.format == "dot") {
    fmt::print("{}", topo::to_dot(graph));
  } else if (options.format == "svg") {
    fmt::print("{}", topo::to_svg(graph));
  } else if (what == "paths") {
    fmt::print("{}", topo::print_paths(graph, paths));
  } else {
    for (int n = 0; n < static_cast<int>(graph.nodes.size()); ++n) {
      if (graph.nodes[n].parent < 0) show(graph, n, 0);
    }
    for (const topo::Repair& repair : loaded.repairs) {
      fmt::print("repaired, line {}: {}\n", repair.line, repair.what);
    }
  }
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"What ccl sees of a machine and makes of it", "ccl_topo"};
  app.require_subcommand(1);
  Options options;
  const std::vector<std::pair<const char*, const char*>> commands{
      {"show", "nodes and links"},
      {"paths", "best paths between GPUs and NICs"},
      {"rings", "ring channels, joined over machines"},
      {"trees", "tree channels, joined over machines"},
      {"lint", "what is wrong with the machine, and what to do"},
      {"explain", "why two nodes talk the way they do"},
      {"simulate", "how long a collective would take on many such machines"}};
  for (const auto& [name, text] : commands) {
    CLI::App* command = app.add_subcommand(name, text);
    command->add_option("--xml", options.xml, "topology file; else this machine");
    command->add_option("--hint", options.hint, "vendor's file to lay over it");
    command->add_option("--nodes", options.nodes, "number of such machines")
        ->check(CLI::Range(1, 65536));
    command->add_option("--ranks", options.ranks, "CPU ranks on a machine without GPUs (4)")
        ->check(CLI::Range(1, 1024));
    command->add_flag("--no-p2p", options.no_p2p, "as with P2P disabled");
    command->add_option("--format", options.format, "text, json, xml, dot or svg")
        ->check(CLI::IsMember({"text", "json", "xml", "dot", "svg"}));
    if (std::string(name) == "explain") {
      command->add_option("ends", options.ends, "rank, netN, or a name that `show` prints")
          ->required()
          ->expected(2);
    }
    if (std::string(name) == "simulate") {
      command->add_option("operation", options.what.op, "all_reduce, broadcast ...")->required();
      command->add_option("--bytes", options.bytes, "of the larger buffer: 64K, 1G (64M)")
          ->transform(CLI::AsSizeValue(false));
      command->add_option("--algo", options.what.algo, "Ring, Tree ...; else all");
      command->add_option("--proto", options.what.proto, "Simple, LL128 or LL; else all");
      command->add_option("--root", options.simulation.root, "of broadcast and reduce (0)");
      command->add_option("--net-us", options.simulation.net_us,
                          "latency of a step over the network (the cost model's)");
      command
          ->add_option("--budget", options.simulation.budget,
                       "slices to replay at most; the rest goes on at their pace (5e6)")
          ->check(CLI::Range(std::int64_t{1000}, std::int64_t{1} << 40));
      CLI::Option* own = command->add_option("--channels", options.channels,
                                             "a plan of one's own: this many channels, and");
      own->check(CLI::Range(1, 4096));
      command->add_option("--slot-bytes", options.slot_bytes, "of a slot (the protocol's)")
          ->transform(CLI::AsSizeValue(false))
          ->needs(own);
      command->add_option("--slots", options.slots, "of a wire (8)")->needs(own);
      command->add_option("--slice-steps", options.slice_steps, "slots of a slice (1)")->needs(own);
      command->add_option("--chunk-steps", options.chunk_steps, "slots of a chunk (1)")->needs(own);
    }
  }
  CLI11_PARSE(app, argc, argv);
  const auto done = run(app.get_subcommands().front()->get_name(), options);
  if (done) return 0;
  fmt::print(stderr, "ccl_topo: {}\n", done.error().message());
  return 1;
}
