// Machines that are written as XML: read back, they are the same, in NCCL's schema.
#include <ccl/topo/xml.hpp>

#include <map>
#include <set>

#include "support/catch.hpp"
#include "support/machines.hpp"

namespace topo = ccl::topo;
using ccl::test::load;

namespace {

/// Elements and attributes that NCCL's reader knows; what is not there is wrong.
std::string beyond_schema(const topo::Element& element) {
  static const std::map<std::string, std::set<std::string>> schema{
      {"system", {"version"}},
      {"cpu", {"numaid", "host_hash", "affinity", "arch", "vendor", "familyid", "modelid", "keep"}},
      {"pci",
       {"busid", "class", "vendor", "device", "subsystem_vendor", "subsystem_device", "link_speed",
        "link_width", "keep"}},
      {"pcilink", {"target"}},
      {"gpu", {"dev", "sm", "rank", "gdr", "mlopart", "keep"}},
      {"nvlink", {"target", "count", "tclass"}},
      {"c2c", {"bw", "count"}},
      {"nic", {}},
      {"net",
       {"name", "dev", "latency", "speed", "port", "guid", "maxconn", "gdr", "coll", "gin", "rma",
        "net", "rail", "plane", "keep"}}};
  const auto known = schema.find(element.name);
  if (known == schema.end()) return "<" + element.name + ">";
  for (const auto& attribute : element.attributes) {
    if (known->second.count(attribute.first) == 0) return element.name + " " + attribute.first;
  }
  for (const topo::Element& child : element.children) {
    const std::string wrong = beyond_schema(child);
    if (!wrong.empty()) return wrong;
  }
  return "";
}

}  // namespace

TEST_CASE("every attribute of the schema is written again, and nothing beyond it") {
  const std::string text =
      "<system version=\"1\">\n"
      "  <cpu host_hash=\"0xab\" numaid=\"0\" affinity=\"ff\" arch=\"x86_64\" "
      "vendor=\"GenuineIntel\" familyid=\"6\" modelid=\"143\" keep=\"1\">\n"
      "    <pci busid=\"0000:10:00.0\" class=\"0x060400\" vendor=\"0x1000\" device=\"0xc030\" "
      "subsystem_vendor=\"0x1\" subsystem_device=\"0x2\" link_speed=\"32.0 GT/s PCIe\" "
      "link_width=\"16\" keep=\"1\">\n"
      "      <pci busid=\"0000:11:00.0\" class=\"0x030200\" vendor=\"0x10de\" device=\"0x2335\" "
      "link_speed=\"32.0 GT/s PCIe\" link_width=\"16\">\n"
      "        <gpu dev=\"0\" sm=\"90\" rank=\"0\" gdr=\"1\" mlopart=\"0\" keep=\"1\">\n"
      "          <nvlink target=\"fffffff:ff:ff.0\" count=\"18\" tclass=\"0x068000\"/>\n"
      "        </gpu>\n"
      "      </pci>\n"
      "      <pci busid=\"0000:12:00.0\" class=\"0x020700\" link_speed=\"32.0 GT/s PCIe\" "
      "link_width=\"16\">\n"
      "        <nic>\n"
      "          <net name=\"mlx5_0\" dev=\"0\" latency=\"0.000000\" speed=\"400000\" port=\"1\" "
      "guid=\"0x12\" maxconn=\"131072\" gdr=\"1\" coll=\"1\" gin=\"1\" rma=\"1\" net=\"1\" "
      "rail=\"3\" plane=\"0\" keep=\"1\"/>\n"
      "        </nic>\n"
      "      </pci>\n"
      "    </pci>\n"
      "  </cpu>\n"
      "</system>\n";
  const auto loaded = load(text);
  if (!loaded) FAIL(loaded.error().what);
  CHECK(loaded->repairs.empty());
  const topo::Element written = topo::to_xml(loaded->graph);
  CHECK(topo::print_xml(written) == text);
  CHECK(beyond_schema(written) == "");
}

TEST_CASE("what ccl makes no use of is written again") {
  const std::string text = R"(<system version="1">
  <cpu numaid="0" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="106" extra="e">
    <pci busid="0000:17:00.0" class="0x030200" link_speed="16.0 GT/s PCIe" link_width="16" mark="m">
      <gpu dev="0" sm="90" rank="0" gdr="1" mlopart="2" keep="1" fabric="ab:1">
        <c2c bw="44712" count="10"/>
      </gpu>
    </pci>
    <pci busid="0000:18:00.0" class="0x060400" link_speed="16.0 GT/s PCIe" link_width="16">
      <pcilink target="0000:19:00.0"/>
    </pci>
    <pci busid="0000:19:00.0" class="0x060400" link_speed="16.0 GT/s PCIe" link_width="16"/>
    <pci busid="0000:4b:00.0" class="0x020700" link_speed="16.0 GT/s PCIe" link_width="16">
      <nic>
        <net name="mlx5_0" dev="0" speed="200000" port="1" guid="0x12" gdr="1" coll="1" rail="3" plane="1" keep="1" gin="1" rma="0" net="1"/>
        <gin name="mlx5_0" dev="0" speed="200000" port="1" guid="0x12" gdr="1"/>
        <rma name="mlx5_0" dev="0" speed="200000"/>
      </nic>
    </pci>
  </cpu>
</system>)";
  const auto loaded = load(text);
  REQUIRE(loaded);
  CHECK(loaded->repairs.empty());
  const std::string written = topo::print_xml(topo::to_xml(loaded->graph));
  for (const char* part :
       {"extra=\"e\"", "mark=\"m\"", "mlopart=\"2\"", "fabric=\"ab:1\"", "bw=\"447120\"",
        "<pcilink target=\"0000:19:00.0\"", "coll=\"1\"", "rail=\"3\"", "plane=\"1\"", "gin=\"1\"",
        "rma=\"0\"", "<gin name=\"mlx5_0\"", "<rma name=\"mlx5_0\"", "keep=\"1\""}) {
    INFO(part);
    CHECK(written.find(part) != std::string::npos);
  }
}
