#include <ccl/topo/search.hpp>

#include <fmt/format.h>

#include <iostream>
#include <set>
#include <string>

#include "support/catch.hpp"
#include "support/graph_of.hpp"
#include "support/room/nccl_answers.hpp"
#include "support/room/shapes.hpp"

namespace topo = ccl::topo;
using ccl::test::graph_of;
using topo::NodeType;
using topo::PathType;
using topo::Pattern;

namespace {

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
