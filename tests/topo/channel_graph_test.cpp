#include <ccl/topo/channel_graph.hpp>

#include <string>

#include "support/catch.hpp"

namespace topo = ccl::topo;

namespace {

topo::Graph pair() {
  topo::Graph graph;
  for (int n = 0; n < 2; ++n) {
    topo::Node node;
    node.type = topo::NodeType::gpu;
    node.gpu.rank = n;
    node.gpu.dev = 10 + n;  // devices and ranks differ where a job uses part of a machine
    graph.add(node);
  }
  return graph;
}

ccl::Result<std::vector<topo::ChannelGraph>> read(const std::string& inside) {
  const auto file = topo::parse_xml("<graphs version=\"1\">" + inside + "</graphs>", "graphs.xml");
  REQUIRE(file);
  return topo::to_channel_graphs(*file, pair());
}

}  // namespace

TEST_CASE("graph files name devices, in hexadecimal or decimal, or ranks") {
  const auto graphs = read(
      "<graph id=\"1\" pattern=\"3\" nchannels=\"2\" speedintra=\"12\" speedinter=\"6\" "
      "typeintra=\"NVL\" "
      "typeinter=\"PXN\" samechannels=\"0\" crossnic=\"2\"><channel><net dev=\"1\"/><gpu "
      "dev=\"0xa\"/><gpu dev=\"11\"/>"
      "<net dev=\"3\"/></channel><channel><gpu dev=\"7\" rank=\"1\"/><gpu dev=\"7\" "
      "rank=\"0\"/></channel></graph>");
  if (!graphs) FAIL(graphs.error().what);
  REQUIRE(graphs->size() == 1);
  const topo::ChannelGraph& graph = graphs->front();
  CHECK(graph.pattern == topo::Pattern::tree);
  CHECK(graph.type_inter == topo::PathType::pxn);
  CHECK_FALSE(graph.same_channels);
  CHECK(graph.cross_nic == 2);
  CHECK(graph.channels.at(0) == topo::ChannelOrder{{0, 1}, 1, 3});
  CHECK(graph.channels.at(1) == topo::ChannelOrder{{1, 0}, -1, -1});
  const std::string text = topo::print(graph);
  CHECK(text.find("NET1 0 1 NET3") != std::string::npos);
  const std::string xml = topo::print_xml(topo::to_xml({graph}, pair()));
  const auto again = topo::parse_xml(xml, "again");
  REQUIRE(again);
  CHECK(topo::to_channel_graphs(*again, pair())->front().channels == graph.channels);
}

TEST_CASE("NVLS channels of NCCL name their head alone") {
  const auto graphs = read(
      "<graph id=\"3\" pattern=\"5\" nchannels=\"2\"><channel><gpu dev=\"0xb\"/></channel>"
      "<channel><gpu dev=\"0xa\"/></channel></graph>");
  if (!graphs) FAIL(graphs.error().what);
  CHECK(graphs->front().channels.at(0).ranks == std::vector{1, 0});
  CHECK(graphs->front().channels.at(1).ranks == std::vector{0, 1});
}

TEST_CASE("a number of a device counts before a rank, which NCCL counts in its communicator") {
  const auto graphs = read(
      "<graph nchannels=\"2\"><channel><gpu dev=\"0xb\" rank=\"0x8\"/>"
      "<gpu dev=\"0xa\" rank=\"0x9\"/></channel><channel><gpu dev=\"0xb\" rank=\"0x0\"/>"
      "<gpu dev=\"0xa\" rank=\"0x1\"/></channel></graph>");
  if (!graphs) FAIL(graphs.error().what);
  CHECK(graphs->front().channels.at(0).ranks == std::vector{1, 0});
  CHECK(graphs->front().channels.at(1).ranks == std::vector{1, 0});
}

TEST_CASE("numbers of devices in an NVLink domain begin with that of the host") {
  const std::string channel =
      "<graph nchannels=\"1\"><channel><net dev=\"0x100000000000003\"/>"
      "<gpu dev=\"0x10000000000000b\"/><gpu dev=\"0x10000000000000a\"/></channel></graph>";
  const auto graphs = read(channel);
  if (!graphs) FAIL(graphs.error().what);
  CHECK(graphs->front().channels.at(0) == topo::ChannelOrder{{1, 0}, 3, -1});

  topo::Graph hosts = pair();  // one number on two hosts
  hosts.nodes[1].gpu.dev = 10;
  hosts.nodes[1].host = 1;
  const auto order = [&](const std::string& gpus) {
    const auto file = topo::parse_xml(
        "<graphs><graph nchannels=\"1\"><channel>" + gpus + "</channel></graph></graphs>",
        "graphs.xml");
    const auto read = topo::to_channel_graphs(*file, hosts);
    return read ? read->front().channels.at(0).ranks : std::vector{-1};
  };
  CHECK(order("<gpu dev=\"0x10000000000000a\"/><gpu dev=\"0xa\"/>") == std::vector{1, 0});
  CHECK(order("<gpu dev=\"0xa\" rank=\"1\"/><gpu dev=\"0xa\" rank=\"0\"/>") == std::vector{1, 0});
}

TEST_CASE("a NIC of a graph file is one of the machine, if that has any") {
  const auto file = topo::parse_xml(
      "<graphs><graph nchannels=\"1\"><channel><net dev=\"77\"/><gpu dev=\"10\"/><gpu dev=\"11\"/>"
      "<net dev=\"4\"/></channel></graph></graphs>",
      "graphs.xml");
  topo::Graph machine = pair();
  CHECK(topo::to_channel_graphs(*file, machine));
  topo::Node net;
  net.type = topo::NodeType::net;
  net.net.dev = 4;
  machine.add(net);
  const auto graphs = topo::to_channel_graphs(*file, machine);
  REQUIRE_FALSE(graphs);
  CHECK(graphs.error().what.find(
            "<net> dev=\"77\" is refused (the machine has no such NIC, but 4)") !=
        std::string::npos);
}

TEST_CASE("graph files that cannot be meant are refused by attribute") {
  const auto problem = [](const std::string& inside) {
    const auto graphs = read(inside);
    return graphs ? std::string("none") : graphs.error().what;
  };
  CHECK(problem("<graph pattern=\"9\"/>").find("pattern=\"9\"") != std::string::npos);
  CHECK(problem("<graph nchannels=\"3\"/>").find("nchannels=\"3\"") != std::string::npos);
  CHECK(problem("<graph typeintra=\"FAR\"/>").find("typeintra=\"FAR\"") != std::string::npos);
  CHECK(problem("<graph speedintra=\"fast\"/>").find("speedintra=\"fast\"") != std::string::npos);
  CHECK(problem(
            "<graph nchannels=\"1\"><channel><gpu dev=\"10\"/><gpu dev=\"10\"/></channel></graph>")
            .find("twice") != std::string::npos);
  CHECK(problem("<graph nchannels=\"1\"><channel><gpu dev=\"1\" rank=\"8\"/></channel></graph>")
            .find("no such rank") != std::string::npos);
  // A rank's place would be beyond the end of the channel.
  CHECK(problem("<graph nchannels=\"1\"><channel><gpu dev=\"11\"/></channel></graph>")
            .find("graphs.xml:1: this <channel> is without rank 0 (each holds all 2 GPUs") == 0);
  CHECK(problem("<graph id=\"0\" pattern=\"1\"/>").find("the ring, 4") != std::string::npos);
  CHECK(problem("<graph id=\"1\" pattern=\"4\"/>").find("1 to 3") != std::string::npos);
  CHECK(problem("<graph nchannels=\"0\"/>") == "none");
  CHECK(problem("<graph speedintra=\"-20\"/>").find("speedintra=\"-20\" is refused (below 0)") !=
        std::string::npos);
  CHECK(problem("<graph crossnic=\"7\"/>")
            .find("graphs.xml:1: <graph> crossnic=\"7\" is refused "
                  "(0 to 2 are known)") == 0);
  const auto later = topo::parse_xml("<graphs version=\"99\"/>", "graphs.xml");
  REQUIRE(later);
  CHECK(topo::to_channel_graphs(*later, pair())
            .error()
            .what.find("graphs.xml:1: <graphs> version=\"99\" is refused (1 is known)") == 0);
}
