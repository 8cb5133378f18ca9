#include <ccl/topo/graph.hpp>

#include <cmath>
#include <string>

#include "support/catch.hpp"

namespace topo = ccl::topo;
using topo::LinkType;
using topo::NodeType;
using topo::PathType;

TEST_CASE("path types have NCCL's names and numbers, and read back") {
  const char* names[] = {"LOC", "NVL", "NVB", "C2C", "PIX", "PXB",
                         "P2C", "PXN", "PHB", "SYS", "NET", "DIS"};
  for (int value = 0; value < 12; ++value) {
    const auto type = static_cast<PathType>(value);
    CHECK(topo::name(type) == names[value]);
    PathType read = PathType::dis;
    CHECK(topo::parse(names[value], read));
    CHECK(read == type);
  }
  PathType kept = PathType::pix;
  CHECK(topo::parse("sys", kept));
  CHECK(kept == PathType::sys);
  CHECK_FALSE(topo::parse("PIXX", kept));
  CHECK_FALSE(topo::parse("", kept));
  CHECK(kept == PathType::sys);
}

TEST_CASE("PCIe bandwidth follows generation and width") {
  CHECK(topo::pcie_bw("16.0 GT/s PCIe", 16) == 24);
  CHECK(topo::pcie_bw("8 GT/s", 16) == 12);
  CHECK(topo::pcie_bw("32.0 GT/s PCIe", 16) == 48);
  CHECK(topo::pcie_bw("64.0 GT/s PCIe", 8) == 48);
  CHECK(topo::pcie_bw("2.5 GT/s PCIe", 1) == 0.1875F);
  CHECK(topo::pcie_bw("", 16) == 0);
  CHECK(topo::pcie_bw("Unknown", 16) == 0);
  CHECK(topo::pcie_bw("17 GT/s", 16) == 0);
}

TEST_CASE("NVLink and socket bandwidths follow the generation") {
  CHECK(topo::nvlink_bw(60) == 18);
  CHECK(topo::nvlink_bw(70) == 20);
  CHECK(topo::nvlink_bw(80) == 20);
  CHECK(topo::nvlink_bw(86) == 12);
  CHECK(std::abs(18 * topo::nvlink_bw(90) - 370.8F) < 0.01F);
  CHECK(topo::nvlink_bw(100) == 40.1F);
  topo::Node::Cpu cpu;
  cpu.arch = topo::CpuArch::x86;
  cpu.vendor = topo::CpuVendor::intel;
  cpu.family = 6;
  cpu.model = 79;
  CHECK(topo::sys_bw(cpu) == 6);
  cpu.model = 106;
  CHECK(topo::sys_bw(cpu) == 10);
  cpu.model = 143;
  CHECK(topo::sys_bw(cpu) == 22);
  cpu.model = 207;
  CHECK(topo::sys_bw(cpu) == 40);
  cpu.vendor = topo::CpuVendor::amd;
  CHECK(topo::sys_bw(cpu) == 16);
}

TEST_CASE("links to one node add up, and the widest comes first") {
  topo::Graph graph;
  for (int n = 0; n < 3; ++n) {
    topo::Node node;
    node.type = NodeType::gpu;
    node.id = 0x10 + n;
    node.gpu.rank = 2 - n;
    node.gpu.sm = 90 - n;
    graph.add(node);
  }
  graph.connect(0, 1, LinkType::nvl, 20);
  graph.connect(0, 2, LinkType::nvl, 30);
  graph.connect(0, 1, LinkType::nvl, 20);
  graph.connect(0, 1, LinkType::pci, 12);
  REQUIRE(graph.nodes[0].out.size() == 3);
  CHECK(graph.links[graph.nodes[0].out[0]].bw == 40);
  CHECK(graph.links[graph.nodes[0].out[1]].to == 2);
  CHECK(graph.links[graph.nodes[0].out[2]].type == LinkType::pci);
  CHECK(graph.nodes[1].out.empty());
  CHECK(graph.gpu_of_rank(0) == 2);
  CHECK(graph.gpu_of_rank(3) == -1);
  CHECK(graph.min_sm() == 88);
  CHECK(graph.label(1) == "GPU/0-11");
  CHECK(graph.of(NodeType::net).empty());
}
