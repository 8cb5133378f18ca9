#include <ccl/topo/fuse.hpp>
#include <ccl/topo/path.hpp>
#include <ccl/topo/search.hpp>
#include <ccl/topo/xml.hpp>

#include <string>

#include "support/catch.hpp"
#include "support/graph_of.hpp"

namespace topo = ccl::topo;
using ccl::test::graph_of;
using topo::FuseLevel;
using topo::NodeType;

namespace {

/// Below a switch a GPU, a card with two functions and a card with one port; on the CPU another
/// card; on the second CPU one more.
topo::Graph machine() {
  return graph_of(R"(<system version="1">
  <cpu numaid="0" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="143">
    <pci busid="0000:10:00.0" class="0x060400" link_speed="32.0 GT/s PCIe" link_width="16">
      <pci busid="0000:11:00.0" link_speed="32.0 GT/s PCIe" link_width="16"><gpu dev="0" sm="90" rank="0" gdr="1"/></pci>
      <pci busid="0000:12:00.0" link_speed="32.0 GT/s PCIe" link_width="16"><nic><net name="mlx5_0" dev="0" speed="200000" port="1" guid="0x1" gdr="1" rail="0"/></nic></pci>
      <pci busid="0000:12:00.1" link_speed="32.0 GT/s PCIe" link_width="16"><nic><net name="mlx5_1" dev="1" speed="200000" port="2" guid="0x1" gdr="1" rail="1"/></nic></pci>
      <pci busid="0000:13:00.0" link_speed="32.0 GT/s PCIe" link_width="16"><nic><net name="mlx5_2" dev="2" speed="200000" port="1" guid="0x2" gdr="1" rail="0"/></nic></pci>
    </pci>
    <pci busid="0000:14:00.0" link_speed="32.0 GT/s PCIe" link_width="16"><nic><net name="mlx5_3" dev="3" speed="200000" port="1" guid="0x3" gdr="1"/></nic></pci>
  </cpu>
  <cpu numaid="1" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="143">
    <pci busid="0000:80:00.0" link_speed="32.0 GT/s PCIe" link_width="16"><nic><net name="mlx5_4" dev="4" speed="200000" port="1" guid="0x4" gdr="0"/></nic></pci>
  </cpu>
</system>)");
}

std::string names(const topo::Graph& graph) {
  std::string all;
  for (const int net : graph.of(NodeType::net)) {
    all += (all.empty() ? "" : " ") + graph.nodes[net].net.name;
  }
  return all;
}

topo::Graph fused(FuseLevel level) {
  topo::FuseRules rules;
  rules.level = level;
  return topo::fuse_nets(machine(), rules);
}

}  // namespace

TEST_CASE("each level fuses what is no farther apart") {
  CHECK(names(fused(FuseLevel::none)) == "mlx5_0 mlx5_1 mlx5_2 mlx5_3 mlx5_4");
  CHECK(names(fused(FuseLevel::port)) == "mlx5_2 mlx5_3 mlx5_4 mlx5_0+mlx5_1");
  CHECK(names(fused(FuseLevel::pix)) == "mlx5_3 mlx5_4 mlx5_0+mlx5_1+mlx5_2");
  CHECK(names(fused(FuseLevel::phb)) == "mlx5_4 mlx5_0+mlx5_1+mlx5_2+mlx5_3");
  // At most four NETs in one.
  CHECK(names(fused(FuseLevel::sys)) == "mlx5_4 mlx5_0+mlx5_1+mlx5_2+mlx5_3");
}

TEST_CASE("a fused NET has the sum of the speeds, what all can, and the place above all") {
  const topo::Graph cards = fused(FuseLevel::port);
  const int card = cards.of(NodeType::net).back();
  CHECK(cards.nodes[card].net.bw == 50);
  CHECK(cards.nodes[card].net.dev == 5);  // counted on, as NCCL does
  CHECK(cards.nodes[card].net.gdr);
  CHECK_FALSE(cards.nodes[cards.nodes[card].parent].pci.bus_id.empty());  // on its own card
  const topo::Paths paths = topo::compute_paths(cards);
  const int gpu = cards.gpu_of_rank(0);
  CHECK(paths.at(gpu, card).type == topo::PathType::pix);
  CHECK(paths.at(gpu, card).bw == 48);  // the card's PCIe link, which both ports share

  const topo::Graph wide = fused(FuseLevel::phb);
  const int net = wide.of(NodeType::net).back();
  CHECK(wide.nodes[net].net.bw == 100);
  CHECK(wide.nodes[wide.nodes[wide.nodes[net].parent].parent].type == NodeType::cpu);
  CHECK(wide.of(NodeType::nic).size() == 2);

  topo::FuseRules rules;
  rules.forced = *topo::parse_groups("mlx5_3,mlx5_4");
  const topo::Graph forced = topo::fuse_nets(machine(), rules);
  CHECK(names(forced) == "mlx5_2 mlx5_3+mlx5_4 mlx5_0+mlx5_1");
  CHECK_FALSE(forced.nodes[forced.of(NodeType::net)[1]].net.gdr);
}

TEST_CASE("a policy by rail keeps rails apart") {
  topo::FuseRules rules;
  rules.level = FuseLevel::pix;
  rules.same_rail = true;
  CHECK(names(topo::fuse_nets(machine(), rules)) == "mlx5_1 mlx5_3 mlx5_4 mlx5_0+mlx5_2");
}

TEST_CASE("a machine with fused NETs is searched, written and read again") {
  for (const FuseLevel level : {FuseLevel::port, FuseLevel::pix, FuseLevel::phb, FuseLevel::sys}) {
    const topo::Graph graph = fused(level);
    const auto file = topo::parse_xml(topo::print_xml(topo::to_xml(graph)), "fused");
    REQUIRE(file);
    const auto again = topo::to_graph(*file);
    if (!again) FAIL(again.error().what);
    CHECK(again->graph.links.size() == graph.links.size());
    CHECK(again->graph.of(NodeType::net).size() == graph.of(NodeType::net).size());
    const topo::Paths paths = topo::compute_paths(graph);
    const topo::ChannelPlan plan = topo::search_all(graph, paths, 2);
    CHECK(topo::check(plan.ring, graph, paths).empty());
    CHECK(plan.ring.bw_inter > 0.1F);
  }
}

TEST_CASE("levels and groups are read as NCCL's users write them") {
  FuseLevel level{};
  CHECK(topo::parse("pxb", level));
  CHECK(level == FuseLevel::pxb);
  CHECK_FALSE(topo::parse("NVL", level));
  const auto groups = topo::parse_groups("a:1,b:2;c,d;");
  REQUIRE(groups);
  REQUIRE(groups->size() == 2);
  CHECK((*groups)[0][1] == std::pair<std::string, int>("b", 2));
  CHECK((*groups)[1][0] == std::pair<std::string, int>("c", 0));
  for (const char* bad : {"a:x", "a:0", ":1", "a:1x,b"}) {
    const auto wrong = topo::parse_groups(bad);
    REQUIRE_FALSE(wrong);
    CHECK(wrong.error().what.find("CCL_NET_FORCE_MERGE") == 0);
  }
}
