#include <ccl/topo/path.hpp>
#include <ccl/topo/search.hpp>
#include <ccl/topo/xml.hpp>

#include <fmt/format.h>

#include <cerrno>
#include <set>
#include <string>

#include "base/text.hpp"
#include "support/catch.hpp"
#include "support/graph_of.hpp"
#include "support/machines.hpp"

namespace topo = ccl::topo;
using ccl::test::load;

namespace {

std::string error_of(std::string_view text) {
  auto loaded = load(text);
  return loaded ? "no error" : loaded.error().what;
}

bool repaired(const topo::LoadedGraph& loaded, std::string_view words) {
  for (const topo::Repair& repair : loaded.repairs) {
    if (repair.what.find(words) != std::string::npos) return true;
  }
  return false;
}

float bw(const topo::Graph& graph, int from, int to) {
  for (const int l : graph.nodes[from].out) {
    if (graph.links[l].to == to) return graph.links[l].bw;
  }
  return 0;
}

constexpr auto two_gpus = R"(<?xml version="1.0"?>
<!-- tabs, comments and a declaration are welcome -->
<system version="1">
	<cpu numaid="0" affinity="ff" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="106">
    <pci busid="0000:17:00.0" class="0x030200" link_speed="16.0 GT/s PCIe" link_width="16">
      <gpu dev="0" sm="80" rank="0" gdr="1">
        <nvlink target="0000:65:00.0" count="12" tclass="0x030200"/>
      </gpu>
    </pci>
    <pci busid="0000:65:00.0" class="0x030200" link_speed="16.0 GT/s PCIe" link_width="16">
      <gpu dev="1" sm="80" rank="1" gdr="1">
        <nvlink target="0000:17:00.0" count="12" tclass="0x030200"/>
      </gpu>
    </pci>
    <pci busid="0000:4b:00.0" class="0x020000" link_speed="16.0 GT/s PCIe" link_width="16">
      <nic><net name="mlx5_0" dev="0" speed="200000" port="1" guid="0x12" gdr="1"/></nic>
    </pci>
  </cpu>
</system>)";

}  // namespace

TEST_CASE("a plain machine is read as it is") {
  const auto loaded = load(two_gpus);
  REQUIRE(loaded);
  CHECK(loaded->repairs.empty());
  const topo::Graph& graph = loaded->graph;
  const auto gpus = graph.of(topo::NodeType::gpu);
  REQUIRE(gpus.size() == 2);
  CHECK(bw(graph, gpus[0], gpus[1]) == 240);
  CHECK(bw(graph, gpus[0], graph.of(topo::NodeType::cpu)[0]) == 24);
  CHECK(graph.label(gpus[0]) == "GPU/0-17000");
  const auto nets = graph.of(topo::NodeType::net);
  REQUIRE(nets.size() == 1);
  CHECK(graph.nodes[nets[0]].net.bw == 25);
  CHECK(graph.nodes[nets[0]].net.guid == 0x12);
}

TEST_CASE("what is written reads back the same and is what NCCL's parser takes") {
  const auto first = load(two_gpus);
  REQUIRE(first);
  const std::string text = topo::print_xml(topo::to_xml(first->graph));
  CHECK(text.find('\t') == std::string::npos);
  CHECK(text.find("<?") == std::string::npos);
  const auto second = load(text);
  REQUIRE(second);
  CHECK(topo::print_xml(topo::to_xml(second->graph)) == text);
  REQUIRE(second->graph.links.size() == first->graph.links.size());
  for (std::size_t i = 0; i < first->graph.links.size(); ++i) {
    CHECK(second->graph.links[i].bw == first->graph.links[i].bw);
  }
}

TEST_CASE("errors name file, line and attribute") {
  CHECK(error_of("").find("test.xml:1") == 0);
  CHECK(error_of("<system><cpu></system>").find("not well-formed") != std::string::npos);
  CHECK(
      error_of("<system/><!-- end -->\n<system/>").find(":2: not well-formed XML (a second root") !=
      std::string::npos);
  for (const char* bytes : {"\xff\xfe", "\xc3", "\xc0\xaf", "\xed\xa0\x80", "\xf5\x80\x80\x80"}) {
    const std::string name = std::string{"<system>\n<net name=\"a"} + bytes + "\"/></system>";
    CHECK(error_of(name).find("test.xml:2: the value of name is no UTF-8") == 0);
    const std::string element = std::string{"<system>\n<net"} + bytes + "/></system>";
    CHECK(error_of(element).find("test.xml:2: the name of an element is no UTF-8") == 0);
    const std::string attribute = std::string{"<system>\n<net a"} + bytes + "=\"\"/></system>";
    CHECK(error_of(attribute).find("test.xml:2: the name of an attribute is no UTF-8") == 0);
  }
  CHECK(error_of("<system><net name=\"\u00fc\u540d\U0001f600\"/></system>").find("UTF-8") ==
        std::string::npos);
  CHECK(error_of("<graphs version=\"1\"/>").find("graph file") != std::string::npos);
  const std::string bad_bus = error_of("<system>\n<cpu>\n<pci busid=\"zz\"/></cpu></system>");
  CHECK(bad_bus.find("test.xml:3: <pci> busid=\"zz\"") == 0);
  const std::string bad_sm =
      error_of("<system><cpu>\n<pci busid=\"1\"><gpu rank=\"0\" sm=\"big\"/></pci></cpu></system>");
  CHECK(bad_sm.find("test.xml:2: <gpu> sm=\"big\"") == 0);
  const std::string twice = error_of(
      "<system><cpu><pci busid=\"1\"><gpu rank=\"0\"/></pci>\n<pci busid=\"2\"><gpu rank=\"0\"/>"
      "</pci></cpu></system>");
  CHECK(twice.find("test.xml:2: <gpu> rank=\"0\"") == 0);
  std::string deep = "<system><cpu>";
  for (int i = 0; i < 5000; ++i) deep += "<pci busid=\"1\">";
  for (int i = 0; i < 5000; ++i) deep += "</pci>";
  CHECK(error_of(deep + "</cpu></system>").find("nested") != std::string::npos);
}

TEST_CASE("blanks and a sign before a number are read as in NCCL, and two signs are none") {
  const auto loaded = load(R"(<system version=" 1"><cpu numaid="+1" arch="x86_64"
      vendor="GenuineIntel" familyid=" 6" modelid="	106"/></system>)");
  REQUIRE(loaded);
  const topo::Node& cpu = loaded->graph.nodes[0];
  CHECK(cpu.id == 1);
  CHECK(cpu.cpu.family == 6);
  CHECK(cpu.cpu.model == 106);
  for (const char* number : {"--5", "--9223372036854775808", "0x-5", "+-5", "-+5", " ", "- 5"}) {
    CHECK(error_of(std::string{"<system><cpu numaid=\""} + number + "\"/></system>")
              .find("not a number") != std::string::npos);
  }
}

TEST_CASE("missing and absurd values are repaired by name") {
  auto loaded = load(R"(<system>
    <cpu numaid="0" arch="x86_64" vendor="AuthenticAMD">
      <pci busid="0000:01:00.0" link_speed="" link_width="0">
        <gpu dev="0" sm="80">
          <nvlink target="0000:01:00.0" count="12" tclass="0x030200"/>
          <nvlink target="0000:02:00.0" count="2" tclass="0x030200"/>
          <nvlink target="0000:77:00.0" count="2" tclass="0x030200"/>
        </gpu>
      </pci>
      <pci busid="0000:02:00.0" link_speed="16 GT/s" link_width="16"><gpu dev="1" sm="80"/></pci>
      <nic><net name="eth0" speed="0"/><net name="eth1"/></nic>
      <surprise/>
    </cpu>
    <pci busid="0000:09:00.0" link_speed="16 GT/s" link_width="8"/>
  </system>)");
  REQUIRE(loaded);
  CHECK(repaired(*loaded, "PCIe speed"));
  CHECK(repaired(*loaded, "to itself"));
  CHECK(repaired(*loaded, "not back"));
  CHECK(repaired(*loaded, "which is no GPU here"));
  CHECK(repaired(*loaded, "no <gpu> has a rank"));
  CHECK(repaired(*loaded, "<net name=\"eth0\"> speed=\"0\": taken as 10 Gbit/s"));
  CHECK(repaired(*loaded, "<net name=\"eth1\"> without speed: taken as 10 Gbit/s"));
  CHECK(repaired(*loaded, "without dev"));
  CHECK(repaired(*loaded, "<surprise>"));
  CHECK(repaired(*loaded, "outside of any <cpu>"));
  const auto gpus = loaded->graph.of(topo::NodeType::gpu);
  CHECK(bw(loaded->graph, gpus[0], gpus[1]) == 40);
  CHECK(bw(loaded->graph, gpus[1], gpus[0]) == 40);
  CHECK(bw(loaded->graph, gpus[0], loaded->graph.of(topo::NodeType::cpu)[0]) == 12);
}

TEST_CASE("a width that a virtual machine does not know is taken as 16 lanes, and named") {
  auto loaded = load(R"(<system>
    <cpu numaid="0" arch="x86_64" vendor="GenuineIntel">
      <pci busid="0000:01:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="255">
        <gpu dev="0" sm="90" rank="0"/>
      </pci>
    </cpu>
  </system>)");
  REQUIRE(loaded);
  CHECK(repaired(*loaded, "width 255: taken as 48 GB/s"));
  const auto& graph = loaded->graph;
  CHECK(bw(graph, graph.of(topo::NodeType::gpu)[0], graph.of(topo::NodeType::cpu)[0]) == 48);
}

TEST_CASE("what is left out, or not as it says, is named") {
  const auto loaded = load(R"(<system version="99">
    <cpu numaid="0" affinity="zz" arch="x86_64" vendor="GenuineIntel"><cpu numaid="1"/>
      <pci busid="0000:01:00.0" link_speed="16 GT/s" link_width="16">
        <gpu dev="0" rank="0" sm="80"><nvlink target="fffffff:ff:ff.0" count="2" tclass="0x068000"><x/></nvlink></gpu>
        <gpu dev="1" rank="1" sm="80"/>
        <nic><net name="lost" dev="1" speed="10000"/></nic>
      </pci>
      <pci busid="0000:02:00.0" link_speed="16 GT/s" link_width="16">
        <nic><net name="a" dev="0" speed="10000" guid="0xb8599f030007053a"><y/></net></nic><pci busid="3"/>
      </pci>
    </cpu></system>)");
  REQUIRE(loaded);
  CHECK(repaired(*loaded, "<system> of version 99 (1 and 2 are known): taken as 1"));
  CHECK(repaired(*loaded, "<cpu> affinity=\"zz\" is no mask of cores: left out"));
  CHECK(repaired(*loaded, "<cpu> left out, as it belongs in the <system>"));
  CHECK(repaired(*loaded, "<gpu> beside the <gpu> of 0000:01:00.0 left out"));
  CHECK(repaired(*loaded, "<nic> beside the <gpu> of 0000:01:00.0 left out"));
  CHECK(repaired(*loaded, "<pci> beside the <nic> of 0000:02:00.0 left out"));
  CHECK(repaired(*loaded, "<x> below <nvlink> left out"));
  CHECK(repaired(*loaded, "<y> below <net> left out"));
  const topo::Graph& graph = loaded->graph;
  CHECK(graph.version == 1);  // what is written is of a version that is
  CHECK(graph.gpu_of_rank(0) >= 0);
  CHECK(graph.nodes[graph.of(topo::NodeType::cpu)[0]].cpu.affinity == "");
  for (const char* guid : {"0c42:a103:0012:3456", "0x10000000000000000", "-1", "0x12 or so"}) {
    const std::string error =
        error_of("<system><cpu arch=\"x86_64\"><nic>\n<net dev=\"0\" guid=\"" + std::string{guid} +
                 "\"/></nic></cpu></system>");
    CHECK(error.find("test.xml:2: <net> guid=\"" + std::string{guid} + "\" is refused") == 0);
  }
}

TEST_CASE("asymmetric links keep both figures") {
  std::string text(two_gpus);
  text.replace(text.find("count=\"12\""), 10, "count=\"1\"");
  const auto loaded = load(text);
  REQUIRE(loaded);
  const auto gpus = loaded->graph.of(topo::NodeType::gpu);
  CHECK(bw(loaded->graph, gpus[0], gpus[1]) == 20);
  CHECK(bw(loaded->graph, gpus[1], gpus[0]) == 240);
  CHECK(repaired(*loaded, "the way back"));
}

TEST_CASE("many NICs are no trouble") {
  std::string text = "<system><cpu arch=\"x86_64\" vendor=\"GenuineIntel\"><nic>";
  for (int n = 0; n < 61; ++n) {
    text += "<net name=\"e" + std::to_string(n) + "\" dev=\"" + std::to_string(n) +
            "\" speed=\"100000\" guid=\"0x" + std::to_string(n + 1) + "\"/>";
  }
  const auto loaded = load(text + "</nic></cpu></system>");
  REQUIRE(loaded);
  CHECK(loaded->graph.of(topo::NodeType::net).size() == 61);
}

TEST_CASE("what a repair and an error quote ends with a whole character") {
  std::string value = "a";
  for (int n = 0; n < 60; ++n) value += "\u00e9";
  const auto loaded =
      load("<system><cpu numaid=\"0\" arch=\"x86_64\" affinity=\"" + value + "\"/></system>");
  if (!loaded) FAIL(loaded.error().what);
  REQUIRE(repaired(*loaded, "is no mask of cores"));
  for (const topo::Repair& repair : loaded->repairs) CHECK(ccl::detail::is_utf8(repair.what));
  CHECK(ccl::detail::is_utf8(error_of("<system><cpu numaid=\"" + value + "\"/></system>")));
}

TEST_CASE("NICs of one name and port are named") {
  const auto repairs = [](const char* second) {
    const auto loaded = ccl::test::loaded_from(fmt::format(R"(<system version="1">
<cpu numaid="0" arch="x86_64" vendor="GenuineIntel"><nic>
<net name="mlx5_0" dev="0" speed="100000" port="1" guid="0x1"/>
<net {} dev="1" speed="100000" guid="0x2"/></nic></cpu></system>)",
                                                           second));
    return loaded.repairs;
  };
  CHECK(repairs(R"(name="mlx5_1" port="1")").empty());
  CHECK(repairs(R"(name="mlx5_0" port="2")").empty());
  const auto twice = repairs(R"(name="mlx5_0" port="1")");
  REQUIRE(twice.size() == 1);
  CHECK(twice[0].line == 4);
  CHECK(twice[0].what.find("second <net name=\"mlx5_0\"> of port 1 (the first is in line 3)") == 0);
}

TEST_CASE("NETs have numbers of their own on all hosts, which ranks can send each other") {
  const auto host = [](int number) {
    const std::string n = std::to_string(number);
    return "<cpu host_hash=\"0x" + n + "\" numaid=\"0\" arch=\"x86_64\" vendor=\"GenuineIntel\">" +
           R"(<pci busid="0000:11:00.0" link_speed="16 GT/s" link_width="16">
              <gpu dev="0" sm="90" gdr="1" rank=")" +
           n + R"("><nvlink target="x" count="18" tclass="0x068000"/></gpu></pci>
              <pci busid="0000:12:00.0" link_speed="16 GT/s" link_width="16">
              <nic><net name="mlx5_0" dev="0" speed="200000" guid="0x1"/>
              <net name="mlx5_1" dev="40000" port="2" speed="200000" guid="0x1"/></nic></pci></cpu>)";
  };
  const auto loaded = load("<system>" + host(0) + host(1) + "</system>");
  if (!loaded) FAIL(loaded.error().what);
  const topo::Graph& graph = loaded->graph;
  std::vector<int> numbers;
  for (const int net : graph.of(topo::NodeType::net)) numbers.push_back(graph.nodes[net].net.dev);
  CHECK(numbers == std::vector{0, 1, 2, 3});
  CHECK(repaired(*loaded, "<net name=\"mlx5_1\"> dev=\"40000\" is above 32767: numbered 1"));
  CHECK(repaired(*loaded, "dev=\"0\" is that of a <net> of another host, too: numbered 2"));
  const topo::Paths paths = topo::compute_paths(graph);
  const topo::ChannelPlan plan = topo::search_all(graph, paths, 4);
  CHECK(topo::check(plan.ring, graph, paths) == "");
  for (const topo::ChannelOrder& order : plan.ring.channels) CHECK(order.net_in != order.net_out);
}

TEST_CASE("a CPU without arch reads back as one of unknown kind") {
  const auto loaded = load("<system><cpu numaid=\"0\"/><cpu numaid=\"1\"/></system>");
  if (!loaded) FAIL(loaded.error().what);
  const auto again = load(topo::print_xml(topo::to_xml(loaded->graph)));
  if (!again) FAIL(again.error().what);
  CHECK(bw(loaded->graph, 0, 1) == topo::gbps::sys_other);
  CHECK(bw(again->graph, 0, 1) == topo::gbps::sys_other);
}

TEST_CASE("what has no end, is no file or is too long is refused") {
  const auto endless = topo::read_xml("/dev/zero");
  REQUIRE_FALSE(endless);
  CHECK(endless.error().code == ccl::Errc::invalid_argument);
  CHECK(endless.error().what.find("/dev/zero is too long (it goes on after 67108864 bytes)") == 0);
  const auto folder = topo::read_xml("/");
  REQUIRE_FALSE(folder);
  CHECK(folder.error().code == ccl::Errc::system);
  CHECK(folder.error().os_code == EISDIR);
  const auto none = topo::read_xml("/no/such/file");
  REQUIRE_FALSE(none);
  CHECK(none.error().os_code == ENOENT);
}

TEST_CASE("files of several hosts, or with devices outside of any CPU, can be joined") {
  const auto gpu = [](int rank) {
    return R"(<pci busid="0000:01:00.0" link_speed="32.0 GT/s PCIe" link_width="16"><gpu dev="0" )"
           R"(sm="90" rank=")" +
           std::to_string(rank) +
           R"(" gdr="1"><nvlink target="f" count="18" tclass="0x068000"/></gpu></pci>)";
  };
  const auto nic = [](int dev) {
    return R"(<nic><net name="eth0" dev=")" + std::to_string(dev) + R"(" speed="1000"/></nic>)";
  };
  const auto cpu = [](const char* host, const std::string& inside) {
    return R"(<cpu numaid="0" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="106" )"
           R"(host_hash=")" +
           std::string{host} + "\">" + inside + "</cpu>";
  };
  for (const std::string& text : {cpu("0xa", gpu(0) + nic(0)) + cpu("0xb", gpu(1) + nic(0)),
                                  gpu(0) + nic(0), cpu("0xa", gpu(0)) + nic(0)}) {
    const auto file = topo::parse_xml("<system version=\"1\">" + text + "</system>", "file");
    REQUIRE(file);
    const auto one = topo::to_graph(*file);
    REQUIRE(one);
    const auto both = topo::to_graph({"joined", topo::join_hosts({file->root, file->root})});
    INFO(text);
    if (!both) FAIL(both.error().what);
    for (const auto type : {topo::NodeType::gpu, topo::NodeType::net, topo::NodeType::cpu}) {
      CHECK(both->graph.of(type).size() == 2 * one->graph.of(type).size());
    }
    CHECK(both->graph.of(topo::NodeType::nvs).size() == 1);
    std::set<int> hosts;
    for (const topo::Node& node : both->graph.nodes) hosts.insert(node.host);
    CHECK(hosts.size() == 2 * (text.find("0xb") == std::string::npos ? 1 : 2));
  }
}

TEST_CASE("hosts on one NVLink fabric are one machine") {
  const auto file = topo::parse_xml(R"(<system version="1">
  <cpu numaid="0" arch="arm64" vendor="ARM">
    <pci busid="0000:01:00.0" link_speed="32.0 GT/s PCIe" link_width="16"><gpu dev="0" sm="100" rank="0" gdr="1" fabric="ab:1"><nvlink target="fffffff:ff:ff.0" count="18" tclass="0x068000"/></gpu></pci>
    <pci busid="0000:02:00.0" link_speed="32.0 GT/s PCIe" link_width="16"><gpu dev="1" sm="100" rank="1" gdr="1" fabric="ab:1"><nvlink target="fffffff:ff:ff.0" count="18" tclass="0x068000"/></gpu></pci>
    <pci busid="0000:03:00.0" link_speed="32.0 GT/s PCIe" link_width="16"><nic><net name="mlx5_0" dev="0" speed="400000" port="1" guid="0x1" gdr="1"/></nic></pci>
  </cpu></system>)",
                                    "host");
  REQUIRE(file);
  topo::XmlFile joined{"hosts", topo::join_hosts({file->root, file->root, file->root})};
  const auto loaded = topo::to_graph(joined);
  if (!loaded) FAIL(loaded.error().what);
  const topo::Graph& graph = loaded->graph;
  CHECK(graph.of(topo::NodeType::nvs).size() == 1);
  REQUIRE(graph.of(topo::NodeType::gpu).size() == 6);
  REQUIRE(graph.of(topo::NodeType::net).size() == 3);
  const topo::Paths paths = topo::compute_paths(graph);
  for (int a = 0; a < 6; ++a) {
    for (int b = 0; b < 6; ++b) {
      const int from = graph.gpu_of_rank(a), to = graph.gpu_of_rank(b);
      REQUIRE(from >= 0);
      CHECK(graph.nodes[from].host == a / 2);
      if (a == b) continue;
      CHECK(paths.at(from, to).type == topo::PathType::nvl);
      CHECK(topo::check_p2p(graph, paths, {}, from, to).allowed);
    }
  }
  // All of them are one domain; a NIC of another host is not reached.
  CHECK(topo::trim(graph, paths, 0, 6).of(topo::NodeType::gpu).size() == 6);
  const int nic_there = graph.of(topo::NodeType::net)[2];
  CHECK(paths.at(graph.gpu_of_rank(0), nic_there).type > topo::PathType::phb);
  // Written and read again, it is the same.
  const auto again = topo::parse_xml(topo::print_xml(topo::to_xml(graph)), "again");
  REQUIRE(again);
  const auto same = topo::to_graph(*again);
  REQUIRE(same);
  CHECK(same->graph.links.size() == graph.links.size());

  // GPUs of different cliques share no NVLink, so only the network is left.
  topo::XmlFile other = joined;
  const auto rename = [](auto& self, topo::Element& element) -> void {
    if (element.name == "gpu") element.set("fabric", "ab:2");
    for (topo::Element& child : element.children) self(self, child);
  };
  rename(rename, other.root.children[1]);
  const auto parted = topo::to_graph(other);
  REQUIRE(parted);
  const topo::Paths away = topo::compute_paths(parted->graph);
  const int here = parted->graph.gpu_of_rank(0), there = parted->graph.gpu_of_rank(2);
  CHECK(away.at(here, there).type >= topo::PathType::net);
  CHECK(away.at(here, parted->graph.gpu_of_rank(4)).type == topo::PathType::nvl);
}

TEST_CASE("a known element in the place of others is left out by a sentence that names its place") {
  const auto loaded = load(R"(<system version="1">
    <gpu dev="1" sm="80" rank="1"/>
    <cpu numaid="0" arch="x86_64"><net name="lost" dev="1"/>
      <pci busid="0000:01:00.0"><net name="efa_0" dev="0"/></pci>
      <pci busid="0000:02:00.0"><gpu dev="0" sm="80" rank="0"><nic/></gpu></pci>
      <nvlink target="0" count="12"/><what/>
    </cpu></system>)");
  REQUIRE(loaded);
  CHECK(repaired(*loaded, "<gpu> left out, as it belongs in a <pci>"));
  CHECK(repaired(*loaded, "<net> left out, as it belongs in the <nic> of a <pci>"));
  CHECK(repaired(*loaded, "<nic> left out, as it belongs in a <pci> or a <cpu>"));
  CHECK(repaired(*loaded, "<nvlink> left out, as it belongs in a <gpu>"));
  CHECK(repaired(*loaded, "unknown element <what> left out"));
}
