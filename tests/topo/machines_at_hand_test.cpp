// Topology files of real machines, which are not part of the repository: CCL_TEST_TOPOLOGIES names
// the folder that has them, with NCCL's own answers in golden/. machines_test.cpp has machines of
// their shapes.
#include <ccl/topo/connect.hpp>
#include <ccl/topo/path.hpp>
#include <ccl/topo/search.hpp>
#include <ccl/topo/xml.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>
#include <cmath>
#include <ctime>
#include <iostream>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "support/catch.hpp"
#include "support/machines.hpp"
#include "support/skip.hpp"

namespace topo = ccl::topo;
using ccl::test::load;
using topo::NodeType;
using topo::PathType;
using topo::Pattern;

namespace {

/// Time of this process alone: the machine may be busy with others.
std::chrono::duration<double> cpu_now() {
  return std::chrono::duration<double>(static_cast<double>(std::clock()) / CLOCKS_PER_SEC);
}

/// Folder of topology files of real machines, or nothing.
const char* topology_folder() {
  return std::getenv("CCL_TEST_TOPOLOGIES");
}
const char* const no_folder = "CCL_TEST_TOPOLOGIES names no folder of topology files";

}  // namespace

TEST_CASE("files of real machines load, and what is written reads back") {
  const char* folder = topology_folder();
  if (folder == nullptr) return ccl::test::skip(no_folder);
  int machines = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.path().extension() != ".xml") continue;
    INFO(entry.path().string());
    const auto file = topo::read_xml(entry.path().string());
    REQUIRE(file);
    if (file->root.name != "system") continue;
    const auto loaded = topo::to_graph(*file);
    if (!loaded) FAIL(loaded.error().what);
    ++machines;
    const std::string text = topo::print_xml(topo::to_xml(loaded->graph));
    const auto again = load(text);
    if (!again) FAIL(again.error().what);
    CHECK(topo::print_xml(topo::to_xml(again->graph)) == text);
    CHECK(again->graph.links.size() == loaded->graph.links.size());
  }
  CHECK(machines > 0);
}

TEST_CASE("paths of real machines beside NCCL's own answers") {
  const char* folder = topology_folder();
  if (folder == nullptr) return ccl::test::skip(no_folder);
  int total = 0, same = 0, other_hops = 0, worse = 0;
  for (const ccl::test::Golden& golden : ccl::test::golden_machines(folder)) {
    const topo::Graph& graph = golden.graph;
    const topo::Paths paths = topo::compute_paths(graph, golden.rules);
    std::map<std::string, int> by_label;
    for (int n = 0; n < static_cast<int>(graph.nodes.size()); ++n) by_label[graph.label(n)] = n;
    for (const auto& theirs : golden.answers["n2"]["paths"]) {
      const auto from = by_label.find(theirs["from"]);
      const auto to = by_label.find(theirs["to"]);
      if (from == by_label.end() || to == by_label.end()) continue;
      const topo::Path& ours = paths.at(from->second, to->second);
      PathType type = PathType::dis;
      REQUIRE(topo::parse(theirs["type"].get<std::string>(), type));
      const float bw = theirs["bw"];
      ++total;
      if (ours.type == type && std::abs(ours.bw - bw) < 0.01F) {
        ++same;
        other_hops += ours.hops() == theirs["hopsNoDev"].get<int>() ? 0 : 1;
        continue;
      }
      const bool no_worse = ours.type <= type && ours.bw >= bw - 0.01F;
      worse += no_worse ? 0 : 1;
      std::cout << (no_worse ? "better: " : "differs: ") << golden.name << " " << theirs["from"]
                << " to " << theirs["to"] << ": NCCL " << theirs["type"] << " " << bw << ", ccl "
                << topo::name(ours.type) << " " << ours.bw << "\n";
    }
  }
  std::cout << "paths: " << total << ", same type and bandwidth " << same << " (of these "
            << other_hops << " with another number of hops), others " << worse << "\n";
  CHECK(total > 900);
  // NCCL gives a directed pair the bandwidth of the way back: 240 one way, 20 the other, swapped.
  CHECK(worse <= 1);
}

TEST_CASE("published graphs of real machines load beside ours") {
  const char* folder = topology_folder();
  if (folder == nullptr) return ccl::test::skip(no_folder);
  const std::filesystem::path root(folder);
  for (const auto& [machine_file, graph_file] :
       {std::pair("h200x8/topo.xml", "h200x8/graph.xml"),
        std::pair("azure/ncv4-topo.xml", "azure/ncv4-graph.xml"),
        std::pair("misc/panlichen-topo.xml", "misc/panlichen-graph.xml")}) {
    const auto loaded = topo::load_graph((root / machine_file).string());
    REQUIRE(loaded);
    const auto file = topo::read_xml((root / graph_file).string());
    REQUIRE(file);
    const auto theirs = topo::to_channel_graphs(*file, loaded->graph);
    if (!theirs) FAIL(theirs.error().what);
    REQUIRE_FALSE(theirs->empty());
    const int local = static_cast<int>(loaded->graph.of(NodeType::gpu).size());
    const bool between = theirs->at(0).channels.at(0).net_in >= 0;
    topo::PathRules rules;
    rules.p2p_disabled = std::string(machine_file).find("panlichen") != std::string::npos;
    const topo::ChannelPlan plan = topo::search_all(
        loaded->graph, topo::compute_paths(loaded->graph, rules), between ? 2 * local : local);
    std::cout << graph_file << ": ring " << theirs->at(0).count() << " x " << theirs->at(0).bw_intra
              << ", ccl " << plan.ring.count() << " x " << plan.ring.bw_intra << "; tree "
              << theirs->at(1).count() << " x " << theirs->at(1).bw_intra << ", ccl "
              << plan.tree.count() << " x " << plan.tree.bw_intra << "\n";
    if (std::string(graph_file).find("h200x8") != std::string::npos) {
      CHECK(plan.ring.channels == theirs->at(0).channels);
      CHECK(plan.tree.channels == theirs->at(1).channels);
      CHECK(plan.ring.bw_intra == theirs->at(0).bw_intra);
    }
  }
}

TEST_CASE("vendors' hint files restore what a VM flattens") {
  const char* folder = topology_folder();
  if (folder == nullptr) return ccl::test::skip(no_folder);
  const std::filesystem::path root(folder);
  for (const auto& [hint_name, full_name] :
       {std::pair("azure/ndv2-topo.xml", "golden/azure-ndv2-topo.xml"),
        std::pair("azure/ndv4-topo.xml", "golden/azure-ndv4-topo.xml"),
        std::pair("aws/p4d-24xl-topo.xml", "golden/aws-p4d-24xl-topo.xml"),
        std::pair("aws/g5.48xl-topo.xml", "golden/aws-g5.48xl-topo.xml")}) {
    INFO(hint_name);
    const auto hint = topo::read_xml((root / hint_name).string());
    const auto full = topo::read_xml((root / full_name).string());
    REQUIRE(hint);
    REQUIRE(full);
    topo::XmlFile flat;
    flat.name = "flat";
    flat.root.name = "system";
    topo::Element cpu = full->root.children.front();
    cpu.children.clear();
    cpu.set("numaid", "-1");
    for (const topo::Element& other : full->root.children) ccl::test::flatten(other, cpu);
    flat.root.children.push_back(cpu);
    const auto flattened = topo::to_graph(flat);
    const auto merged = topo::to_graph({"merged", topo::merge(flat.root, hint->root)});
    const auto true_one = topo::to_graph(*full);
    REQUIRE(flattened);
    if (!merged) FAIL(merged.error().what);
    REQUIRE(true_one);
    const int local = static_cast<int>(true_one->graph.of(NodeType::gpu).size());
    CHECK(static_cast<int>(merged->graph.of(NodeType::gpu).size()) == local);
    const auto ring = [&](const topo::Graph& graph) {
      return topo::search_all(graph, topo::compute_paths(graph), 2 * local).ring;
    };
    const topo::ChannelGraph bare = ring(flattened->graph), ours = ring(merged->graph),
                             best = ring(true_one->graph);
    std::cout << fmt::format(
        "{:24} flat {} x {:g} {}, with the hint {} x {:g} {}, by hand {} x {:g} {}\n", hint_name,
        bare.count(), bare.bw_inter, topo::name(bare.type_inter), ours.count(), ours.bw_inter,
        topo::name(ours.type_inter), best.count(), best.bw_inter, topo::name(best.type_inter));
    CHECK(ours.type_inter == best.type_inter);
    CHECK(ours.count() == best.count());
    CHECK(ours.bw_inter == best.bw_inter);
  }
}

TEST_CASE("channels of real machines beside NCCL's own answers") {
  const char* folder = topology_folder();
  if (folder == nullptr) return ccl::test::skip(no_folder);
  int worse = 0;
  for (const ccl::test::Golden& golden : ccl::test::golden_machines(folder)) {
    for (const int nodes : {1, 2, 4}) {
      const auto start = cpu_now();
      const int ranks = static_cast<int>(golden.graph.of(NodeType::gpu).size()) * nodes;
      const topo::Paths paths = topo::compute_paths(golden.graph, golden.rules);
      const topo::ChannelPlan plan = topo::search_all(golden.graph, paths, ranks);
      const std::chrono::duration<double, std::milli> ms = cpu_now() - start;
      const auto& theirs = golden.answers[fmt::format("n{}", nodes)]["graphs"];
      const auto compare = [&](const char* key, const topo::ChannelGraph& ours) {
        const auto& g = theirs[key];
        const float bw = g["nChannels"].get<float>() * g["bwIntra"].get<float>();
        const float inter = g["nChannels"].get<float>() * g["bwInter"].get<float>();
        PathType intra_type, inter_type;
        topo::parse(g["typeIntra"].get<std::string>(), intra_type);
        topo::parse(g["typeInter"].get<std::string>(), inter_type);
        const float our_inter = static_cast<float>(ours.count()) * ours.bw_inter;
        const bool same =
            ours.count() == g["nChannels"].get<int>() &&
            std::abs(ours.bw_intra - g["bwIntra"].get<float>()) < 0.01F &&
            std::abs(ours.bw_inter - g["bwInter"].get<float>()) < 0.01F &&
            (bw == 0 || (ours.type_intra == intra_type && ours.type_inter == inter_type));
        const bool no_worse = ours.total_bw() >= bw - 0.01F && our_inter >= inter - 0.01F;
        worse += no_worse ? 0 : 1;
        const std::string wrong = topo::check(ours, golden.graph, paths);
        std::cout << fmt::format(
            "{:28} n{} {:22} NCCL {:>2} x {:g}/{:g} {}/{} s{} x{}  ccl {:>2} x {:g}/{:g} {}/{} "
            "s{:d} x{} {} {}\n",
            golden.name, nodes, key, g["nChannels"].get<int>(), g["bwIntra"].get<float>(),
            g["bwInter"].get<float>(), topo::name(intra_type), topo::name(inter_type),
            g["sameChannels"].get<int>(), g["crossNic"].get<int>(), ours.count(), ours.bw_intra,
            ours.bw_inter, topo::name(ours.type_intra), topo::name(ours.type_inter),
            ours.same_channels, ours.cross_nic,
            same       ? "same"
            : no_worse ? "BETTER"
                       : "WORSE",
            wrong);
        if (ours.pattern == Pattern::ring) CHECK(wrong == "");
      };
      compare("ring", plan.ring);
      compare("tree", plan.tree);
      compare("collnetChain_ifEnabled", plan.collnet_chain);
      compare("collnetDirect_ifEnabled", plan.collnet_direct);
      compare("nvls_ifSupported", plan.nvls);
      std::cout << fmt::format("{:28} n{} {:.1f} ms\n", golden.name, nodes, ms.count());
    }
  }
  CHECK(worse == 0);
}

TEST_CASE("joined rings and trees of real machines are NCCL's") {
  const char* folder = topology_folder();
  if (folder == nullptr) return ccl::test::skip(no_folder);
  int same_rings = 0, other_rings = 0, same_trees = 0, other_trees = 0;
  for (const ccl::test::Golden& golden : ccl::test::golden_machines(folder)) {
    const topo::Paths paths = topo::compute_paths(golden.graph, golden.rules);
    const int each = static_cast<int>(golden.graph.of(topo::NodeType::gpu).size());
    for (const int count : {1, 2, 4}) {
      const auto& theirs = golden.answers[fmt::format("n{}", count)]["connect"];
      const topo::ChannelPlan plan = topo::search_all(golden.graph, paths, each * count);
      topo::JoinOptions options;
      options.cross_nic = plan.ring.cross_nic;
      options.extra_copies = topo::copies(plan.ring, count, golden.graph.min_sm());
      const auto joined =
          topo::join(topo::replicate(plan.ring, plan.tree, count), each * count, options);
      REQUIRE(joined);
      CHECK(topo::check(*joined, each * count) == "");
      const bool rings = theirs["rings"].get<std::vector<std::vector<int>>>() == joined->rings;
      std::vector<std::vector<int>> ups;
      for (const auto& tree : joined->trees) {
        ups.emplace_back();
        for (const auto& links : tree) ups.back().push_back(links.up);
      }
      const bool trees = theirs["trees_up"].get<std::vector<std::vector<int>>>() == ups;
      (rings ? same_rings : other_rings)++;
      (trees ? same_trees : other_trees)++;
      if (!rings || !trees) {
        std::cout << fmt::format("{:28} n{}: channels NCCL {} ccl {}, rings {}, trees {}\n",
                                 golden.name, count, theirs["nChannels"].get<int>(),
                                 joined->count(), rings ? "same" : "other",
                                 trees ? "same" : "other");
        for (int c = 0; c < joined->count() / 2; ++c) {
          std::cout << fmt::format("  ring {:>2}: NCCL {}\n           ccl  {}\n", c,
                                   theirs["rings"][c].dump(), fmt::join(joined->rings[c], ","));
          std::cout << fmt::format("  tree {:>2}: NCCL {}\n           ccl  {}\n", c,
                                   theirs["trees_up"][c].dump(), fmt::join(ups[c], ","));
        }
      }
    }
  }
  std::cout << "joined rings: " << same_rings << " same, " << other_rings
            << " other; trees: " << same_trees << " same, " << other_trees << " other\n";
}

TEST_CASE("all machines at hand search and connect for 1 to 64 nodes") {
  const char* folder = topology_folder();
  if (folder == nullptr) return ccl::test::skip(no_folder);
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.path().extension() != ".xml") continue;
    const auto file = topo::read_xml(entry.path().string());
    REQUIRE(file);
    if (file->root.name != "system") continue;
    const auto loaded = topo::to_graph(*file);
    if (!loaded) FAIL(loaded.error().what);
    const int each = static_cast<int>(loaded->graph.of(topo::NodeType::gpu).size());
    const std::string shown = std::filesystem::relative(entry.path(), folder).string();
    if (each == 0) {
      std::cout << fmt::format("{:32} no GPUs: a hint\n", shown);
      continue;
    }
    const auto start = cpu_now();
    const topo::Paths paths = topo::compute_paths(loaded->graph);
    const std::chrono::duration<double, std::milli> paths_ms = cpu_now() - start;
    std::string text = fmt::format("{:32} {:>2} GPUs {} NETs, paths {:.2f} ms;", shown, each,
                                   loaded->graph.of(topo::NodeType::net).size(), paths_ms.count());
    for (const int count : {1, 2, 4, 8, 16, 64}) {
      INFO(shown << " x " << count);
      const auto begin = cpu_now();
      const topo::ChannelPlan plan = topo::search_all(loaded->graph, paths, each * count);
      CHECK(topo::check(plan.ring, loaded->graph, paths) == "");
      CHECK(topo::check(plan.tree, loaded->graph, paths) == "");
      topo::JoinOptions options;
      options.cross_nic = plan.ring.cross_nic;
      topo::ChannelGraph ring = plan.ring, tree = plan.tree;
      const std::size_t both = std::min(ring.channels.size(), tree.channels.size());
      ring.channels.resize(both);
      tree.channels.resize(both);
      const auto joined = topo::join(topo::replicate(ring, tree, count), each * count, options);
      const std::chrono::duration<double, std::milli> ms = cpu_now() - begin;
      REQUIRE(joined);
      CHECK(topo::check(*joined, each * count) == "");
      if (count <= 2) {
        text +=
            fmt::format(" n{}: ring {} x {:g} {}/{} tree {} x {:g}", count, plan.ring.count(),
                        plan.ring.bw_intra, topo::name(plan.ring.type_intra),
                        topo::name(plan.ring.type_inter), plan.tree.count(), plan.tree.bw_intra);
      }
      text += fmt::format("{}{:.1f} ms", count <= 2 ? " (" : ", ", ms.count());
      if (count == 1 || count == 64) text += ")";
    }
    std::cout << text << "\n";
  }
}
