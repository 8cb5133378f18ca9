#include <ccl/topo/draw.hpp>
#include <ccl/topo/search.hpp>
#include <ccl/topo/xml.hpp>

#include <nlohmann/json.hpp>

#include <string>

#include "support/catch.hpp"
#include "support/graph_of.hpp"

namespace topo = ccl::topo;
using ccl::test::graph_of;

namespace {

topo::Graph machine() {
  return graph_of(R"(<system><cpu numaid="0" arch="x86_64" vendor="GenuineIntel">
    <pci busid="a0" link_speed="16 GT/s" link_width="16">
      <pci busid="10" link_speed="16 GT/s" link_width="16"><gpu dev="0" rank="0" sm="90" gdr="1"><nvlink target="20" count="4" tclass="0x0302"/></gpu></pci>
      <pci busid="80" link_speed="16 GT/s" link_width="16"><nic><net name="a&amp;b" dev="0" speed="200000" guid="0x1" gdr="1"/></nic></pci>
    </pci></cpu><cpu numaid="1" arch="x86_64" vendor="GenuineIntel">
    <pci busid="20" link_speed="16 GT/s" link_width="16"><gpu dev="1" rank="1" sm="90" gdr="1"><nvlink target="10" count="4" tclass="0x0302"/></gpu></pci>
    </cpu></system>)");
}

int count(const std::string& text, const std::string& word) {
  int found = 0;
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1))
    ++found;
  return found;
}

}  // namespace

TEST_CASE("pictures are well-formed and show every device once") {
  const topo::Graph graph = machine();
  const std::string svg = topo::to_svg(graph);
  REQUIRE(topo::parse_xml(svg, "svg"));
  CHECK(count(svg, ">GPU 0<") == 1);
  CHECK(count(svg, ">GPU 1<") == 1);
  CHECK(count(svg, ">a&amp;b<") == 1);
  CHECK(count(svg, "PCIe switch") == 1);
  const topo::ChannelPlan plan = topo::search_all(graph, topo::compute_paths(graph), 2);
  REQUIRE(topo::parse_xml(topo::to_svg(plan.ring), "ring"));
  for (const int machines : {1, 2, 7, 64}) {
    const std::string trees = topo::trees_svg(machines);
    REQUIRE(topo::parse_xml(trees, "trees"));
    CHECK(count(trees, "<rect") == 1 + 2 * machines);
  }
}

TEST_CASE("JSON and dot name every node and link") {
  const topo::Graph graph = machine();
  const topo::Paths paths = topo::compute_paths(graph);
  const auto json = nlohmann::json::parse(topo::to_json(graph, &paths));
  CHECK(json["nodes"].size() == graph.nodes.size());
  CHECK(json["links"].size() == graph.links.size());
  CHECK(json["paths"].size() == 6);
  const std::string dot = topo::to_dot(graph);
  CHECK(count(dot, "label=\"GPU/") == 2);
  const topo::ChannelPlan plan = topo::search_all(graph, paths, 2);
  CHECK(nlohmann::json::parse(topo::to_json(plan.ring))["channels"].size() ==
        plan.ring.channels.size());
}
