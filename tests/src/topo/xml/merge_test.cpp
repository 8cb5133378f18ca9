// Hints of vendors, laid over a machine that was detected.
#include <ccl/topo/xml.hpp>

#include <map>
#include <string>

#include "support/catch.hpp"

namespace topo = ccl::topo;

namespace {

float bw(const topo::Graph& graph, int from, int to) {
  for (const int l : graph.nodes[from].out) {
    if (graph.links[l].to == to) return graph.links[l].bw;
  }
  return 0;
}

}  // namespace

TEST_CASE("a hint places what detection found") {
  // A VM shows all devices below one CPU; the hint knows two NUMA nodes and a switch.
  const auto detected = topo::parse_xml(R"(<system version="1">
    <cpu numaid="-1" arch="x86_64" vendor="AuthenticAMD" familyid="23" modelid="49">
      <pci busid="0001:00:00.0" class="0x030200" link_speed="" link_width="0"><gpu dev="0" rank="0" sm="80"/></pci>
      <pci busid="0002:00:00.0" class="0x030200" link_speed="" link_width="0"><gpu dev="1" rank="1" sm="80"/></pci>
      <nic><net name="eth0" dev="0" speed="10000" guid="0x1"/></nic>
    </cpu></system>)",
                                        "detected");
  const auto hint = topo::parse_xml(R"(<system version="1">
    <cpu numaid="0" arch="x86_64" vendor="AuthenticAMD"><pci busid="ffff:ff:01.0" class="0x060400" link_speed="16 GT/s" link_width="16">
      <pci busid="0001:00:00.0" class="0x030200" link_speed="16 GT/s" link_width="16"/></pci></cpu>
    <cpu numaid="1" arch="x86_64" vendor="AuthenticAMD"><pci busid="0002:00:00.0" class="0x030200" link_speed="16 GT/s" link_width="16"/></cpu>
    </system>)",
                                    "hint");
  REQUIRE(detected);
  REQUIRE(hint);
  const topo::XmlFile merged{"merged", topo::merge(detected->root, hint->root)};
  const auto loaded = topo::to_graph(merged);
  REQUIRE(loaded);
  const topo::Graph& graph = loaded->graph;
  const auto gpus = graph.of(topo::NodeType::gpu);
  REQUIRE(gpus.size() == 2);
  CHECK(graph.nodes[graph.nodes[gpus[0]].parent].type == topo::NodeType::pci);
  CHECK(bw(graph, gpus[0], graph.nodes[gpus[0]].parent) == 24);
  CHECK(graph.nodes[graph.nodes[gpus[1]].parent].id == 1);
  CHECK(graph.of(topo::NodeType::net).size() == 1);
}

TEST_CASE(
    "a hint that names NICs leaves those that were detected, with its values and their numbers") {
  const auto detected = topo::parse_xml(R"(<system version="1">
    <cpu numaid="0" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="143">
      <pci busid="0000:3b:00.0" class="0x020000" link_speed="16 GT/s" link_width="16">
        <nic><net name="mlx5_0" dev="0" speed="200000" port="1" guid="0x1"/></nic></pci>
      <pci busid="0000:5b:00.0" class="0x020000" link_speed="16 GT/s" link_width="16">
        <nic><net name="mlx5_1" dev="1" speed="200000" port="1" guid="0x2"/></nic></pci>
      <nic><net name="eth0" dev="2" speed="10000" guid="0x3"/></nic>
    </cpu></system>)",
                                        "detected");
  REQUIRE(detected);
  // Names and speeds of the NETs by number, as a hint makes them.
  const auto nets_with = [&](const std::string& inside) {
    const auto hint =
        topo::parse_xml("<system><cpu numaid=\"0\">" + inside + "</cpu></system>", "hint");
    REQUIRE(hint);
    const auto loaded = topo::to_graph({"merged", topo::merge(detected->root, hint->root)});
    if (!loaded) FAIL(loaded.error().what);
    std::map<int, std::string> nets;
    for (const int net : loaded->graph.of(topo::NodeType::net)) {
      const auto& about = loaded->graph.nodes[net].net;
      nets[about.dev] = about.name + " " + std::to_string(int(about.bw));
    }
    return nets;
  };
  using Nets = std::map<int, std::string>;
  CHECK(nets_with(R"(<pci busid="0000:3b:00.0"><nic/></pci>)") ==
        Nets{{0, "mlx5_0 25"}, {1, "mlx5_1 25"}, {2, "eth0 1"}});
  CHECK(nets_with(R"(<pci busid="0000:5b:00.0"><nic><net name="mlx5_1" dev="0" speed="400000"/>
                  <net name="gone" dev="7"/></nic></pci>)") ==
        Nets{{0, "mlx5_0 25"}, {1, "mlx5_1 50"}, {2, "eth0 1"}});
  CHECK(nets_with(R"(<nic><net name="eth0" dev="0" speed="80000"/></nic>
                  <pci busid="0000:7b:00.0"><nic><net name="mlx5_2" dev="1" speed="80000"/></nic></pci>)") ==
        Nets{{0, "mlx5_0 25"}, {1, "mlx5_1 25"}, {2, "eth0 10"}, {4, "mlx5_2 10"}});
}

TEST_CASE("a hint that says nothing of CPUs leaves those that were detected") {
  const auto detected = topo::parse_xml(
      R"(<system version="1"><cpu numaid="0" arch="x86_64" vendor="GenuineIntel"/></system>)",
      "detected");
  REQUIRE(detected);
  for (const char* hint : {"<system/>", "<system version=\"1\"><cpus/></system>"}) {
    const auto file = topo::parse_xml(hint, "hint");
    REQUIRE(file);
    const auto loaded = topo::to_graph({"merged", topo::merge(detected->root, file->root)});
    REQUIRE(loaded);
    CHECK(loaded->graph.of(topo::NodeType::cpu).size() == 1);  // for ranks to sit on
  }
}

TEST_CASE("a hint tells ports of a card apart, also where they have one name") {
  const auto machine = [](const std::string& nets) {
    const auto file = topo::parse_xml(
        R"(<system version="1"><cpu numaid="0" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="143">
           <pci busid="0000:3b:00.0" class="0x020000" link_speed="16 GT/s" link_width="16"><nic>)" +
            nets + "</nic></pci></cpu></system>",
        "text");
    REQUIRE(file);
    return file->root;
  };
  const auto detected = machine(R"(<net name="mlx5_0" dev="0" speed="100000" port="1" guid="0x1"/>
                                   <net name="mlx5_0" dev="1" speed="100000" port="2" guid="0x1"/>)");
  using Ports = std::map<int, float>;
  const auto ports_with = [&](const std::string& nets) {
    const auto loaded = topo::to_graph({"merged", topo::merge(detected, machine(nets))});
    REQUIRE(loaded);
    Ports ports;
    for (const int net : loaded->graph.of(topo::NodeType::net)) {
      ports[loaded->graph.nodes[net].net.port] = loaded->graph.nodes[net].net.bw;
    }
    return ports;
  };
  CHECK(ports_with(R"(<net name="mlx5_0" speed="200000" port="1"/>
                      <net name="mlx5_0" speed="400000" port="2"/>)") == Ports{{1, 25}, {2, 50}});
  CHECK(ports_with(R"(<net name="mlx5_0" speed="400000" port="2"/>)") == Ports{{1, 12.5}, {2, 50}});
  CHECK(ports_with(R"(<net name="mlx5_0" speed="400000" port="3"/>)") ==
        Ports{{1, 12.5}, {2, 12.5}});
  CHECK(ports_with(R"(<net name="mlx5_0" speed="200000"/>)") == Ports{{1, 25}, {2, 25}});
}
