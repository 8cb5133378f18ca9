#include <ccl/topo/configured.hpp>

#include <filesystem>
#include <string>

#include "support/catch.hpp"
#include "support/environment.hpp"
#include "support/log_of.hpp"
#include <unistd.h>

namespace topo = ccl::topo;
namespace fs = std::filesystem;
using ccl::test::Environment;

namespace {

std::string temporary(const char* what) {
  return (fs::temp_directory_path() / ("ccl_configured_" + std::to_string(getpid()) + what))
      .string();
}

constexpr auto machine =
    R"(<system><cpu numaid="0" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="143">
  <pci busid="10" link_speed="16 GT/s" link_width="16"><gpu dev="0" rank="0" sm="80"/></pci>
  <pci busid="20" link_speed="16 GT/s" link_width="16"><gpu dev="1" rank="1" sm="80"/></pci>
  <pci busid="30" link_speed="16 GT/s" link_width="16"><gpu dev="2" rank="2" sm="80"/></pci></cpu></system>)";

}  // namespace

TEST_CASE("a topology file replaces detection and is dumped") {
  const std::string in = temporary("in.xml"), out = temporary("out.xml");
  REQUIRE(topo::write_file(in, machine));
  {
    const Environment file("NCCL_TOPO_FILE", in), dump("CCL_TOPO_DUMP_FILE", out);
    const auto loaded = topo::configured_machine();
    if (!loaded) FAIL(loaded.error().what);
    CHECK(loaded->graph.of(topo::NodeType::gpu).size() == 3);
    REQUIRE(topo::dump_machine(loaded->graph));
    const auto again = topo::load_graph(out);
    REQUIRE(again);
    CHECK(again->graph.links.size() == loaded->graph.links.size());
  }
  {
    const Environment missing("CCL_TOPO_FILE", temporary("not_there"));
    const auto loaded = topo::configured_machine();
    REQUIRE_FALSE(loaded);
    CHECK(loaded.error().what.find("not_there") != std::string::npos);
    CHECK(loaded.error().what.starts_with("CCL_TOPO_FILE: "));
  }
  {
    const Environment nowhere("CCL_TOPO_DUMP_FILE", temporary("not_there") + "/out.xml");
    CHECK(topo::dump_machine({}));  // what is for diagnosis ends nothing
    const Environment graphs("NCCL_GRAPH_DUMP_FILE", temporary("not_there") + "/out.xml");
    CHECK(topo::dump_channels({}, {}));
    const Environment theirs("NCCL_TOPO_FILE", temporary("not_there"));
    CHECK(topo::configured_machine());  // as NCCL, which detects the topology then
  }
  CHECK(topo::configured_machine());  // this machine
  fs::remove(in);
  fs::remove(out);
}

TEST_CASE(
    "a topology file of NCCL's variable that cannot be opened is a warning, whatever the reason") {
  const Environment theirs("NCCL_TOPO_FILE", "/tmp/" + std::string(300, 'x'));  // no such names
  bool detected = false;
  const std::string log =
      ccl::test::log_of([&] { detected = topo::configured_machine().has_value(); });
  CHECK(detected);
  INFO(log);
  CHECK(log.find("(File name too long); the topology is detected") != log.npos);
}

TEST_CASE("a GPU's data goes through one closer to the NIC unless the settings say no") {
  CHECK(topo::configured_rules()->pxn);
  {
    const Environment none{"CCL_IB_GPU_MEMORY", "0"};  // nor are slots on any GPU
    CHECK_FALSE(topo::configured_rules()->pxn);
  }
  const Environment off{"CCL_PXN_DISABLE", "1"};
  CHECK_FALSE(topo::configured_rules()->pxn);
}

TEST_CASE("levels are read by name and by NCCL's old numbers") {
  CHECK_FALSE(topo::configured_rules()->p2p_level);
  {
    const Environment level("CCL_P2P_LEVEL", "phb"), off("NCCL_P2P_DISABLE", "1");
    const auto rules = topo::configured_rules();
    if (!rules) FAIL(rules.error().what);
    CHECK(rules->p2p_level == topo::PathType::phb);
    CHECK(rules->p2p_disabled);
  }
  const Environment level("NCCL_P2P_LEVEL", "5");
  CHECK(topo::configured_rules()->p2p_level == topo::PathType::sys);
}

TEST_CASE("rules for NICs are read with NCCL's values") {
  CHECK(topo::configured_nets()->cross_nic == 2);
  CHECK_FALSE(topo::configured_rules()->gdr_level);
  CHECK_FALSE(topo::configured_rules()->gdr_read);
  {
    const Environment cross("NCCL_CROSS_NIC", "0"), level("NCCL_NET_GDR_LEVEL", "PHB"),
        read("NCCL_NET_GDR_READ", "0"), policy("NCCL_NETDEVS_POLICY", "MAX:2");
    const auto nets = topo::configured_nets();
    if (!nets) FAIL(nets.error().what);
    CHECK(nets->cross_nic == 0);
    CHECK(nets->policy.most == 2);
    CHECK(nets->relays_messages);
    const auto rules = topo::configured_rules();
    if (!rules) FAIL(rules.error().what);
    CHECK(rules->gdr_level == topo::PathType::phb);
    CHECK(rules->gdr_read == false);
  }
  {
    const Environment none("NCCL_P2P_PXN_LEVEL", "0");
    CHECK_FALSE(topo::configured_nets()->relays_messages);
  }
  {
    const Environment beyond("NCCL_NET_GDR_LEVEL", "9");
    CHECK(topo::configured_rules()->gdr_level == topo::PathType::sys);
  }
  const Environment policy("CCL_NETDEVS_POLICY", "MAX");
  const auto wrong = topo::configured_nets();
  REQUIRE_FALSE(wrong);
  CHECK(wrong.error().what.find("it takes AUTO, ALL, or MAX: and a number from 1") !=
        std::string::npos);
}

TEST_CASE("%h in the path of a topology file stands for the host's name") {
  char host[256] = {};
  REQUIRE(::gethostname(host, sizeof host - 1) == 0);
  const Environment file("CCL_TOPO_FILE", "/somewhere/%h/of-%h.xml");
  CHECK(*topo::configured_file() == "/somewhere/" + std::string(host) + "/of-" + host + ".xml");
}

TEST_CASE("a graph file stands in for the search") {
  const auto file = topo::parse_xml(machine, "machine");
  REQUIRE(file);
  const auto loaded = topo::to_graph(*file);
  REQUIRE(loaded);
  const topo::Paths paths = topo::compute_paths(loaded->graph);
  const std::string out = temporary("graphs.xml"), in = temporary("own.xml");
  {
    const Environment dump("CCL_GRAPH_DUMP_FILE", out);
    const auto found = topo::configured_channels(loaded->graph, paths, 3);
    REQUIRE(found);
    REQUIRE(topo::dump_channels(*found, loaded->graph));
  }
  const auto searched = topo::configured_channels(loaded->graph, paths, 3);
  {
    const Environment use("CCL_GRAPH_FILE", out);
    const auto again = topo::configured_channels(loaded->graph, paths, 3);
    if (!again) FAIL(again.error().what);
    CHECK(again->ring.channels == searched->ring.channels);
  }
  REQUIRE(
      topo::write_file(in,
                       "<graphs><graph id=\"0\" pattern=\"4\" nchannels=\"1\" speedintra=\"7\" "
                       "speedinter=\"7\"><channel><gpu dev=\"2\"/><gpu dev=\"0\"/><gpu dev=\"1\"/>"
                       "</channel></graph></graphs>"));
  {
    const Environment use("CCL_GRAPH_FILE", in);
    const auto own = topo::configured_channels(loaded->graph, paths, 3);
    REQUIRE(own);
    CHECK(own->ring.bw_intra == 7);
    CHECK(own->ring.channels.at(0).ranks == std::vector<int>{2, 0, 1});
    CHECK(own->tree.channels == searched->tree.channels);
  }
  for (const char* nothing :
       {"<graphs version=\"1\"/>", "<graphs><graph nchannels=\"0\"/></graphs>",
        "<graphs><graph id=\"7\" nchannels=\"1\"><channel><gpu dev=\"0\"/>"
        "<gpu dev=\"1\"/><gpu dev=\"2\"/></channel></graph></graphs>"}) {
    REQUIRE(topo::write_file(in, nothing));
    const Environment use("CCL_GRAPH_FILE", in);
    const auto own = topo::configured_channels(loaded->graph, paths, 3);
    REQUIRE_FALSE(own);
    CHECK(own.error().what.find("nothing of the search would be replaced") != std::string::npos);
    CHECK(own.error().what.starts_with("CCL_GRAPH_FILE: "));
  }
  const Environment theirs("NCCL_GRAPH_FILE", temporary("not_there"));
  const auto named = topo::configured_channels(loaded->graph, paths, 3);
  REQUIRE_FALSE(named);
  CHECK(named.error().what.starts_with("NCCL_GRAPH_FILE: "));  // as it was given
  fs::remove(in);
  fs::remove(out);
}

TEST_CASE("a topology file that describes nothing is a warning, and what is detected counts") {
  const std::string in = temporary("nothing.xml");
  REQUIRE(topo::write_file(in, R"(<system><gpu dev="0" sm="80" rank="0"/></system>)"));
  const Environment file("NCCL_TOPO_FILE", in);
  std::size_t detected = 0;
  const std::string log = ccl::test::log_of([&] {
    const auto loaded = topo::configured_machine();
    if (loaded) detected = loaded->graph.nodes.size();
  });
  CHECK(detected > 0);
  INFO(log);
  CHECK(log.find("WARN GRAPH NCCL_TOPO_FILE: " + in + " describes no CPU, GPU or NIC") != log.npos);
  CHECK(log.find("<gpu> left out, as it belongs in a <pci>") != log.npos);
  fs::remove(in);
}
