#include <ccl/topo/search.hpp>

#include <fmt/format.h>

#include <chrono>
#include <ctime>
#include <iostream>
#include <set>
#include <string>

#include "support/catch.hpp"
#include "support/graph_of.hpp"
#include "support/machines.hpp"
#include "support/room/nccl_answers.hpp"
#include "support/room/shapes.hpp"

namespace topo = ccl::topo;
using ccl::test::graph_of;
using topo::NodeType;
using topo::PathType;
using topo::Pattern;

namespace {

/// Time of this process alone: the machine may be busy with others.
std::chrono::duration<double> cpu_now() {
  return std::chrono::duration<double>(static_cast<double>(std::clock()) / CLOCKS_PER_SEC);
}

/// `gpus` behind an NVSwitch or only on PCIe, every two with a switch and a NIC of 25 GB/s.
std::string machine(int gpus, const std::string& link) {
  std::string text =
      "<system><cpu numaid=\"0\" arch=\"x86_64\" vendor=\"GenuineIntel\" familyid=\"6\" "
      "modelid=\"143\">";
  for (int g = 0; g < gpus; ++g) {
    if (g % 2 == 0) {
      text += fmt::format(
          "<pci busid=\"a{}:00.0\" link_speed=\"16 GT/s\" link_width=\"16\"><pci "
          "busid=\"b{}:00.0\" "
          "link_speed=\"16 GT/s\" link_width=\"16\"><nic><net name=\"n\" dev=\"{}\" "
          "speed=\"200000\" "
          "guid=\"0x{}\" gdr=\"1\"/></nic></pci>",
          g, g, g / 2, g + 1);
    }
    text += fmt::format(
        "<pci busid=\"c{}:00.0\" link_speed=\"16 GT/s\" link_width=\"16\"><gpu dev=\"{}\" "
        "rank=\"{}\" "
        "sm=\"80\" gdr=\"1\">{}</gpu></pci>",
        g, g, g, link);
    if (g % 2 == 1 || g == gpus - 1) text += "</pci>";
  }
  return text + "</cpu></system>";
}

constexpr auto switched = "<nvlink target=\"ff\" count=\"12\" tclass=\"0x068000\"/>";

}  // namespace

TEST_CASE("behind an NVSwitch rings fill the links") {
  const topo::Graph graph = graph_of(machine(8, switched));
  const topo::Paths paths = topo::compute_paths(graph);
  const topo::ChannelPlan alone = topo::search_all(graph, paths, 8);
  CHECK(alone.ring.count() == 12);
  CHECK(alone.ring.bw_intra == 20);
  CHECK(alone.ring.type_intra == PathType::nvl);
  CHECK(topo::check(alone.ring, graph, paths) == "");
  CHECK(topo::check(alone.tree, graph, paths) == "");
  CHECK(alone.nvls.count() == 0);
  const topo::ChannelPlan among = topo::search_all(graph, paths, 16);
  CHECK(among.ring.count() == 4);
  CHECK(among.ring.bw_inter == 24);
  CHECK(among.ring.type_inter == PathType::pix);
  CHECK(topo::check(among.ring, graph, paths) == "");
  std::set<int> nets;
  for (const auto& order : among.ring.channels) nets.insert(order.net_in);
  CHECK(nets.size() == 4);
}

TEST_CASE("functions of one card are ports of their own, ports that a NIC lists twice are not") {
  const auto machine = [](const char* second_guid, bool one_function) {
    const std::string net =
        R"(<net name="m{0}" dev="{0}" speed="200000" port="1" guid="{1}" gdr="1"/>)";
    const std::string between =
        one_function
            ? ""
            : R"(</nic></pci><pci busid="3:00.1" link_speed="32 GT/s" link_width="16"><nic>)";
    std::string text =
        R"(<system><cpu numaid="0" arch="arm64"><pci busid="1:00.0" link_speed="32 GT/s" link_width="16">)";
    for (int g = 0; g < 2; ++g) {
      text += fmt::format(
          R"(<pci busid="{}:00.0" link_speed="32 GT/s" link_width="16"><gpu dev="{}" sm="100" rank="{}" gdr="1"><nvlink target="ff" count="18" tclass="0x068000"/></gpu></pci>)",
          6 + g, g, g);
    }
    text += R"(<pci busid="3:00.0" link_speed="32 GT/s" link_width="16"><nic>)";
    text += fmt::format(fmt::runtime(net), 0, "0x1") + between +
            fmt::format(fmt::runtime(net), 1, second_guid);
    return graph_of(text + "</nic></pci></pci></cpu></system>");
  };
  const auto rings = [](const topo::Graph& graph) {
    return topo::search_all(graph, topo::compute_paths(graph), 4).ring;
  };
  const auto same = rings(machine("0x1", false)), others = rings(machine("0x2", false));
  CHECK(same.count() == 2);
  CHECK(others.count() == 2);
  for (const topo::ChannelOrder& order : same.channels) CHECK(order.net_in == order.net_out);
  CHECK(rings(machine("0x1", true)).count() == 1);  // a cable of 25 GB/s
}

namespace {
/// A host of the shape among others, and what the search finds for it.
struct FoundRings {
  topo::Graph graph;
  topo::Paths paths;
  topo::ChannelPlan plan;

  FoundRings(const ccl::test::room::Shape& shape, const topo::PathRules& rules, int cross_nic)
      : graph{graph_of(ccl::test::room::topology(
            shape, 0, shape.gpus, [](int gpu) { return fmt::format("{:02x}:00.0", 16 + gpu); }))},
        paths{topo::compute_paths(graph, rules)},
        plan{topo::search_all(graph, paths, 2 * shape.gpus, cross_nic)} {}
  int net(int dev) const {
    for (const int n : graph.of(NodeType::net)) {
      if (graph.nodes[n].net.dev == dev) return n;
    }
    return -1;
  }
  /// The farthest way by which a channel enters or leaves the host.
  PathType farthest(bool enters) const {
    PathType worst = PathType::loc;
    for (const topo::ChannelOrder& order : plan.ring.channels) {
      const topo::Path& path =
          enters ? paths.at(net(order.net_in), graph.gpu_of_rank(order.ranks.front()))
                 : paths.at(graph.gpu_of_rank(order.ranks.back()), net(order.net_out));
      worst = std::max(worst, path.type);
    }
    return worst;
  }
};
}  // namespace

TEST_CASE("each channel enters and leaves a host by a NIC near its GPU, or by that GPU's peer") {
  auto slow = ccl::test::room::dgx();  // of which a CPU passes on what a NIC takes
  slow.name = "slow";
  slow.nic_mbps = 100000;
  slow.cpu = ccl::test::room::amd;
  for (const auto& shape :
       {ccl::test::room::dgx(), ccl::test::room::ndv4(), ccl::test::room::p5(), slow}) {
    for (const bool pxn : {true, false}) {
      INFO(shape.name << (pxn ? ", PXN" : ", no PXN"));
      topo::PathRules rules;
      rules.pxn = pxn;
      const FoundRings found{shape, rules, 2};
      std::cout << fmt::format("{:5} {:6}: {} x {:g} GB/s, in by {}, out by {}, cross_nic {}\n",
                               shape.name, pxn ? "PXN" : "no PXN", found.plan.ring.count(),
                               found.plan.ring.bw_inter, topo::name(found.farthest(true)),
                               topo::name(found.farthest(false)), found.plan.ring.cross_nic);
      CHECK(topo::check(found.plan.ring, found.graph, found.paths) == "");
      CHECK(found.farthest(true) <= PathType::pxb);
      CHECK(found.farthest(false) <= (pxn ? PathType::pxn : PathType::pxb));
      // The NICs are full at least to nine tenths.
      CHECK(float(found.plan.ring.count()) * found.plan.ring.bw_inter >=
            0.9F * float(shape.nics) * float(shape.nic_mbps) / 8000);
    }
  }
}

TEST_CASE("channels between hosts use the NICs that those of NCCL do, at their speed") {
  for (const auto& answer : ccl::test::room::nccl_answers()) {
    for (const bool pxn : {true, false}) {
      INFO(answer.shape.name << (pxn ? ", PXN" : ", no PXN"));
      topo::PathRules rules;
      rules.pxn = pxn;
      const FoundRings found{answer.shape, rules, 2};
      const auto compare = [&](const topo::ChannelGraph& ours,
                               const std::vector<ccl::test::room::NcclChannel>& theirs) {
        CHECK(ours.bw_inter == answer.bw_inter);
        REQUIRE(ours.channels.size() == theirs.size());
        for (std::size_t c = 0; c < theirs.size(); ++c) {
          INFO("channel " << c);
          CHECK(ours.channels[c].net_in == theirs[c].nic);
          CHECK(ours.channels[c].net_out == theirs[c].nic);
          if (answer.same_orders) CHECK(ours.channels[c].ranks == theirs[c].gpus);
        }
      };
      compare(found.plan.ring, answer.rings);
      compare(found.plan.tree, answer.trees);
    }
  }
}

TEST_CASE("data goes over the GPU next to a NIC only if the NIC may read that GPU's memory") {
  topo::PathRules strict;
  strict.gdr_level = PathType::loc;
  const FoundRings found{ccl::test::room::dgx(), strict, 0};
  CHECK(found.farthest(false) > PathType::pxn);
}

TEST_CASE("PCIe machines get one ring at the speed of the host") {
  const topo::Graph graph = graph_of(machine(4, ""));
  const topo::Paths paths = topo::compute_paths(graph);
  const topo::ChannelPlan plan = topo::search_all(graph, paths, 4);
  CHECK(plan.ring.total_bw() >= 20);
  CHECK(plan.ring.type_intra == PathType::phb);
  CHECK(topo::check(plan.ring, graph, paths) == "");
}

TEST_CASE("one GPU, no path and no GPU have answers") {
  const topo::Graph one = graph_of(machine(1, ""));
  const topo::Paths paths = topo::compute_paths(one);
  CHECK(topo::search_all(one, paths, 1).ring.count() >= 1);
  CHECK(topo::search_all(one, paths, 2).ring.channels.at(0).net_in == 0);
  topo::Graph apart = one;
  topo::Node stranger;
  stranger.type = NodeType::gpu;
  stranger.gpu.rank = 1;
  stranger.gpu.sm = 80;
  apart.add(stranger);
  const topo::ChannelPlan last = topo::search_all(apart, topo::compute_paths(apart), 2);
  REQUIRE(last.ring.count() == 1);
  CHECK(last.ring.bw_intra == 0.1F);
  CHECK(last.ring.channels[0].ranks == std::vector<int>{0, 1});
  const topo::Graph none = graph_of("<system><cpu arch=\"x86_64\"/></system>");
  CHECK(topo::search_all(none, topo::compute_paths(none), 0).ring.count() == 0);
}

TEST_CASE("ranks on CPUs get channels too") {
  topo::Graph graph = graph_of(
      "<system><cpu numaid=\"0\" arch=\"x86_64\" vendor=\"AuthenticAMD\"/>"
      "<cpu numaid=\"1\" arch=\"x86_64\" vendor=\"AuthenticAMD\"/></system>");
  topo::add_cpu_ranks(graph, 6);
  const topo::Paths paths = topo::compute_paths(graph);
  const topo::ChannelPlan plan = topo::search_all(graph, paths, 6);
  CHECK(plan.ring.count() >= 1);
  CHECK(plan.ring.bw_intra > 1);
  CHECK(topo::check(plan.ring, graph, paths) == "");
}

TEST_CASE("found channels survive writing and reading") {
  const topo::Graph graph = graph_of(machine(4, switched));
  const topo::ChannelPlan plan = topo::search_all(graph, topo::compute_paths(graph), 8);
  const std::string text =
      topo::print_xml(topo::to_xml({plan.ring, plan.tree, plan.collnet_chain}, graph));
  const auto file = topo::parse_xml(text, "graphs.xml");
  REQUIRE(file);
  const auto read = topo::to_channel_graphs(*file, graph);
  if (!read) FAIL(read.error().what);
  REQUIRE(read->size() == 3);
  CHECK(read->at(0).channels == plan.ring.channels);
  CHECK(read->at(0).bw_intra == plan.ring.bw_intra);
  CHECK(read->at(1).pattern == plan.tree.pattern);
  CHECK(topo::print_xml(topo::to_xml(*read, graph)) == text);
  const auto bad = topo::parse_xml(
      "<graphs><graph nchannels=\"1\" pattern=\"4\">\n<channel>\n<gpu "
      "dev=\"9\"/></channel></graph></graphs>",
      "bad.xml");
  REQUIRE(bad);
  const auto refused = topo::to_channel_graphs(*bad, graph);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().what.find("bad.xml:3: <gpu> dev=\"9\"") == 0);
}

TEST_CASE("published graphs of real machines load beside ours") {
  const char* folder = ccl::test::topology_folder();
  if (folder == nullptr) return;
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

namespace {

/// GPUs and NICs of a machine, all below one CPU and without link figures: what a VM shows.
void flatten(const topo::Element& from, topo::Element& cpu) {
  for (const topo::Element& child : from.children) {
    if (child.name != "pci") continue;
    const bool device =
        std::any_of(child.children.begin(), child.children.end(),
                    [](const topo::Element& e) { return e.name == "gpu" || e.name == "nic"; });
    if (!device) {
      flatten(child, cpu);
      continue;
    }
    cpu.children.push_back(child);
    cpu.children.back().set("link_speed", "");
    cpu.children.back().set("link_width", "0");
  }
}

}  // namespace

TEST_CASE("vendors' hint files restore what a VM flattens") {
  const char* folder = ccl::test::topology_folder();
  if (folder == nullptr) return;
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
    for (const topo::Element& other : full->root.children) flatten(other, cpu);
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
  const char* folder = ccl::test::topology_folder();
  if (folder == nullptr) return;
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
