#include <ccl/topo/path.hpp>
#include <ccl/topo/xml.hpp>

#include <fmt/format.h>

#include <string>
#include <utility>

#include "support/catch.hpp"
#include "support/graph_of.hpp"

namespace topo = ccl::topo;
using ccl::test::graph_of;
using topo::NodeType;
using topo::PathType;

namespace {

int by_bus(const topo::Graph& graph, std::string_view text) {
  std::int64_t id = 0;
  topo::parse_bus_id(text, id);
  for (int n = 0; n < static_cast<int>(graph.nodes.size()); ++n) {
    if (graph.nodes[n].id == id && !graph.nodes[n].pci.bus_id.empty()) return n;
  }
  return -1;
}

std::string gpu(std::string bus, int rank, std::string inside = "", int sm = 80) {
  return "<pci busid=\"" + bus +
         "\" class=\"0x030200\" link_speed=\"16.0 GT/s PCIe\" link_width=\"16\"><gpu dev=\"" +
         std::to_string(rank) + "\" sm=\"" + std::to_string(sm) + "\" rank=\"" +
         std::to_string(rank) + "\" gdr=\"1\">" + inside + "</gpu></pci>";
}
std::string nic(std::string bus, int dev, std::string more = "gdr=\"1\"") {
  return "<pci busid=\"" + bus +
         "\" class=\"0x020000\" link_speed=\"16.0 GT/s PCIe\" link_width=\"16\"><nic><net "
         "name=\"n" +
         std::to_string(dev) + "\" dev=\"" + std::to_string(dev) +
         "\" speed=\"200000\" port=\"1\" guid=\"0x" + std::to_string(dev + 1) + "\" " + more +
         "/></nic></pci>";
}
std::string bridge(std::string bus, std::string inside) {
  return "<pci busid=\"" + bus +
         "\" class=\"0x060400\" link_speed=\"16.0 GT/s PCIe\" link_width=\"16\">" + inside +
         "</pci>";
}
std::string nvlink(std::string to, int count) {
  return "<nvlink target=\"" + to + "\" count=\"" + std::to_string(count) +
         "\" tclass=\"0x030200\"/>";
}
std::string cpu(std::string inside, int numa = 0, std::string vendor = "GenuineIntel") {
  return "<cpu numaid=\"" + std::to_string(numa) + "\" arch=\"x86_64\" vendor=\"" + vendor +
         "\" familyid=\"6\" modelid=\"106\">" + inside + "</cpu>";
}
std::string machine(std::string inside) {
  return "<system version=\"1\">" + inside + "</system>";
}

// Two GPUs with 4 NVLinks on one socket, a fused NIC on the other.
const std::string two_sockets = machine(
    cpu(gpu("0000:99:00.0", 0, nvlink("0000:bd:00.0", 4), 86) +
            gpu("0000:bd:00.0", 1, nvlink("0000:99:00.0", 4), 86),
        1) +
    cpu(R"(<nic><net name="a+b" dev="2" speed="200000" port="1" guid="0x1" gdr="1"/></nic>)", 0));

}  // namespace

TEST_CASE("paths of two GPUs and a NIC on the other socket, as NCCL prints them") {
  const topo::Graph graph = graph_of(two_sockets);
  const topo::Paths paths = topo::compute_paths(graph);
  CHECK(topo::print_paths(graph, paths) ==
        "Paths from GPU/0-99000 :\n"
        "  (5000.000000)\n"
        " --NVL(48)->GPU/0-bd000 (48.000000)\n"
        " --PCI(24)->CPU/0-1 (24.000000)\n"
        " --PCI(24)->CPU/0-1--SYS(10)->CPU/0-0 (10.000000)\n"
        " --PCI(24)->CPU/0-1--SYS(10)->CPU/0-0--PCI(5000)->NIC/0-0--NET(25)->NET/0-2 (10.000000)\n"
        "Paths from GPU/0-bd000 :\n"
        " --NVL(48)->GPU/0-99000 (48.000000)\n"
        "  (5000.000000)\n"
        " --PCI(24)->CPU/0-1 (24.000000)\n"
        " --PCI(24)->CPU/0-1--SYS(10)->CPU/0-0 (10.000000)\n"
        " --PCI(24)->CPU/0-1--SYS(10)->CPU/0-0--PCI(5000)->NIC/0-0--NET(25)->NET/0-2 (10.000000)\n"
        "Paths from NET/0-2 :\n"
        " --NET(25)->NIC/0-0--PCI(5000)->CPU/0-0--SYS(10)->CPU/0-1--PCI(24)->GPU/0-99000 "
        "(10.000000)\n"
        " --NET(25)->NIC/0-0--PCI(5000)->CPU/0-0--SYS(10)->CPU/0-1--PCI(24)->GPU/0-bd000 "
        "(10.000000)\n"
        " --NET(25)->NIC/0-0--PCI(5000)->CPU/0-0--SYS(10)->CPU/0-1 (10.000000)\n"
        " --NET(25)->NIC/0-0--PCI(5000)->CPU/0-0 (25.000000)\n"
        "  (5000.000000)\n");
  const auto gpus = graph.of(NodeType::gpu);
  const auto net = graph.of(NodeType::net)[0];
  const topo::GdrAnswer gdr = topo::check_gdr(graph, paths, {}, gpus[0], net, false);
  CHECK_FALSE(gdr.allowed);
  CHECK(gdr.why == "distance SYS > P2C");
}

TEST_CASE("one CPU, two switches, two GPUs and NICs: types seen from the first GPU") {
  const topo::Graph graph = graph_of(
      machine(cpu(bridge("0000:0b:00.0", gpu("0000:01:00.0", 0) + nic("0000:02:00.0", 0)) +
                  bridge("0000:0c:00.0", gpu("0000:03:00.0", 1) + nic("0000:04:00.0", 1)))));
  const topo::Paths paths = topo::compute_paths(graph);
  const int g1 = by_bus(graph, "0000:01:00.0");
  const auto seen = [&](int from) {
    return std::pair(paths.wired(from, g1).hops(), paths.wired(from, g1).type);
  };
  CHECK(seen(g1) == std::pair(0, PathType::loc));
  CHECK(seen(by_bus(graph, "0000:0b:00.0")) == std::pair(1, PathType::pix));
  CHECK(seen(graph.of(NodeType::cpu)[0]) == std::pair(2, PathType::phb));
  CHECK(seen(by_bus(graph, "0000:02:00.0")) == std::pair(2, PathType::pix));
  CHECK(seen(by_bus(graph, "0000:0c:00.0")) == std::pair(3, PathType::phb));
  CHECK(seen(by_bus(graph, "0000:03:00.0")) == std::pair(4, PathType::phb));
  CHECK(seen(by_bus(graph, "0000:04:00.0")) == std::pair(4, PathType::phb));
}

TEST_CASE("NVB goes through exactly one GPU, and only between GPUs") {
  // A chain a - b - c - d of NVLinks, each GPU at its own port of the CPU.
  const topo::Graph graph = graph_of(machine(cpu(
      gpu("1", 0, nvlink("2", 2)) + gpu("2", 1, nvlink("1", 2) + nvlink("3", 2)) +
      gpu("3", 2, nvlink("2", 2) + nvlink("4", 2)) + gpu("4", 3, nvlink("3", 2)) + nic("9", 0))));
  const topo::Paths paths = topo::compute_paths(graph);
  const int a = by_bus(graph, "1"), b = by_bus(graph, "2"), c = by_bus(graph, "3"),
            d = by_bus(graph, "4");
  CHECK(paths.wired(a, b).type == PathType::nvl);
  CHECK(paths.wired(a, c).type == PathType::nvb);
  CHECK(topo::check_p2p(graph, paths, {}, a, c).relay == b);
  CHECK(paths.wired(a, d).type == PathType::phb);
  topo::PathRules no_nvb;
  no_nvb.nvb_disabled = true;
  CHECK(topo::compute_paths(graph, no_nvb).at(a, c).type == PathType::phb);
  const int net = graph.of(NodeType::net)[0];
  CHECK(paths.wired(a, net).hops() == 3);
}

TEST_CASE("P2P levels decide between direct and through the CPU") {
  const std::string below = bridge("a0", gpu("1", 0) + gpu("2", 1)) + gpu("3", 2);
  const topo::Graph graph = graph_of(machine(cpu(below)));
  const int a = by_bus(graph, "1"), b = by_bus(graph, "2"), c = by_bus(graph, "3");
  const topo::Paths paths = topo::compute_paths(graph);
  CHECK(topo::check_p2p(graph, paths, {}, a, b).allowed);
  CHECK(paths.at(a, b).hops() == 2);
  CHECK_FALSE(topo::check_p2p(graph, paths, {}, a, c).allowed);
  topo::PathRules off;
  off.p2p_disabled = true;
  const topo::Paths through = topo::compute_paths(graph, off);
  CHECK(through.at(a, b).type == PathType::phb);
  CHECK(through.at(a, b).hops() == 4);
  CHECK(through.wired(a, b).type == PathType::pix);
  topo::PathRules far;
  far.p2p_level = PathType::phb;
  CHECK(topo::check_p2p(graph, paths, far, a, c).allowed);
  off.shm_disabled = true;
  CHECK(topo::compute_paths(graph, off).at(a, b).type == PathType::net);
  // AMD: up to two GPUs may cross sockets.
  const topo::Graph amd =
      graph_of(machine(cpu(gpu("1", 0), 0, "AuthenticAMD") + cpu(gpu("2", 1), 1, "AuthenticAMD")));
  const auto gpus = amd.of(NodeType::gpu);
  CHECK(topo::check_p2p(amd, topo::compute_paths(amd), {}, gpus[0], gpus[1]).allowed);
}

TEST_CASE("PXN sends through the GPU next to the NIC, GDR needs both ends") {
  const topo::Graph graph =
      graph_of(machine(cpu(bridge("a0", gpu("1", 0, nvlink("2", 2)) + nic("80", 0)), 0) +
                       cpu(bridge("b0", gpu("2", 1, nvlink("1", 2)) + nic("90", 1)), 1)));
  const topo::Paths paths = topo::compute_paths(graph);
  const int a = by_bus(graph, "1"), b = by_bus(graph, "2");
  const auto nets = graph.of(NodeType::net);
  CHECK(paths.at(a, nets[0]).type == PathType::pix);
  CHECK(paths.at(a, nets[1]).type == PathType::pxn);
  CHECK(graph.links[paths.at(a, nets[1]).links[0]].to == b);
  CHECK(paths.at(nets[1], a).type == PathType::sys);
  topo::PathRules off;
  off.pxn = false;
  CHECK(topo::compute_paths(graph, off).at(a, nets[1]).type == PathType::sys);
  CHECK(topo::local_net(graph, paths, a, 0) == nets[0]);
  CHECK(topo::local_gpu(graph, paths, nets[1]) == b);
  topo::PathRules strict;
  strict.gdr_level = PathType::loc;
  const topo::Paths through = topo::compute_paths(graph, strict);
  CHECK(through.at(a, nets[0]).type == PathType::phb);
  CHECK(through.at(a, nets[0]).hops() == 5);
  const topo::Graph deaf = graph_of(machine(cpu(gpu("1", 0) + nic("80", 0, "gdr=\"0\""))));
  CHECK_FALSE(topo::check_gdr(deaf, topo::compute_paths(deaf), {}, by_bus(deaf, "1"),
                              deaf.of(NodeType::net)[0], false)
                  .allowed);
}

TEST_CASE("before sm_80, NICs read the memory of GPUs without PCIe traffic among each other") {
  topo::PathRules rules;
  rules.gdr_level = PathType::sys;
  const auto reads = [&](const std::string& gpus) {
    const topo::Graph graph = graph_of(machine(cpu(gpus + nic("80", 0), 0)));
    return topo::check_gdr(graph, topo::compute_paths(graph), rules, by_bus(graph, "1"),
                           graph.of(NodeType::net)[0], true)
        .allowed;
  };
  CHECK(reads(gpu("1", 0, "", 70)));  // as NCCL, which takes a GPU alone for one with NVLink
  CHECK_FALSE(reads(gpu("1", 0, "", 70) + gpu("2", 1, "", 70)));
  CHECK(reads(gpu("1", 0, nvlink("2", 2), 70) + gpu("2", 1, nvlink("1", 2), 70)));
  CHECK(reads(gpu("1", 0) + gpu("2", 1)));
}

TEST_CASE("RDMA is better than the way between two sockets, if NICs access the memory of GPUs") {
  const auto better = [](int gdr, const char* links) {
    std::string text = "<system>";
    for (int n = 0; n < 2; ++n) {
      text += fmt::format(R"(<cpu numaid="{0}" arch="x86_64" vendor="GenuineIntel">
        <pci busid="a{0}:00.0" link_speed="16 GT/s" link_width="16">
        <pci busid="b{0}:00.0" link_speed="16 GT/s" link_width="16"><nic>
        <net name="n{0}" dev="{0}" speed="200000" guid="0x{0}" gdr="{1}"/></nic></pci>
        <pci busid="c{0}:00.0" link_speed="16 GT/s" link_width="16">
        <gpu dev="{0}" rank="{0}" sm="70" gdr="{1}">{2}</gpu></pci></pci></cpu>)",
                          n, gdr, links[0] == 0 ? "" : fmt::format(fmt::runtime(links), 1 - n));
    }
    const topo::Graph graph = graph_of(text + "</system>");
    const int a = graph.gpu_of_rank(0), b = graph.gpu_of_rank(1);
    return topo::net_beats_p2p(graph, topo::compute_paths(graph), a, b);
  };
  CHECK(better(1, ""));
  CHECK_FALSE(better(0, ""));  // data would cross the CPUs all the same
  CHECK_FALSE(better(1, R"(<nvlink target="c{}:00.0" count="1" tclass="0x030200"/>)"));  // 20 GB/s
}

TEST_CASE("PXN is not taken over an NVLink that is narrower than the GPU's own way to the NIC") {
  // The first GPU's slot has half the lanes: 12 GB/s to the NIC, which the second reaches by 24.
  const auto to_nic = [](int sm) {
    std::string narrow = gpu("1", 0, nvlink("2", 1), sm);
    const std::string width = "link_width=\"16\"";
    narrow.replace(narrow.find(width), width.size(), "link_width=\"8\"");
    const topo::Graph graph = graph_of(
        machine(cpu(bridge("a0", narrow + gpu("2", 1, nvlink("1", 1), sm) + nic("80", 0)))));
    const topo::Path path =
        topo::compute_paths(graph).at(by_bus(graph, "1"), graph.of(NodeType::net)[0]);
    return std::pair(path.type, path.bw);
  };
  CHECK(to_nic(80) == std::pair(PathType::pxn, 20.0F));
  CHECK(to_nic(86) == std::pair(PathType::pix, 12.0F));
}

TEST_CASE("thousands of NICs have the paths of each alone") {
  constexpr int nics = 2100;
  std::string below = bridge("ffff:01:00.0", gpu("ffff:02:00.0", 0) + gpu("ffff:03:00.0", 1));
  for (int n = 0; n < nics; ++n) below += nic(fmt::format("{:04x}:{:02x}:00.0", n / 32, n % 32), n);
  const topo::Graph graph = graph_of(machine(cpu(below) + cpu("", 1)));
  const auto nets = graph.of(NodeType::net), gpus = graph.of(NodeType::gpu);
  CHECK_FALSE(topo::has_all_paths(graph));
  const topo::Paths paths = topo::compute_paths(graph);
  const int whole[] = {nets[7], nets.back()};
  const topo::Paths more = topo::compute_paths(graph, {}, whole);
  for (const int net : whole) {
    for (const int gpu : gpus) {
      CHECK(paths.at(gpu, net).hops() == 4);
      CHECK(topo::print_path(graph, paths.at(gpu, net)) ==
            topo::print_path(graph, more.at(gpu, net)));
      CHECK(paths.at(net, gpu).hops() == 4);
    }
    for (const int cpu : graph.of(NodeType::cpu)) {
      CHECK(paths.at(cpu, net).links.back() == more.at(cpu, net).links.back());
    }
  }
  CHECK_FALSE(paths.at(nets[3], nets[7]).reaches());  // nobody asks for it
  CHECK(more.at(nets[3], nets[7]).hops() == 4);
  CHECK(topo::local_gpu(graph, paths, nets[7]) >= 0);
}

TEST_CASE("GPUs share the NICs of their locality as the policy says") {
  std::string below;
  for (int g = 0; g < 2; ++g) below += gpu(std::to_string(g + 1), g);
  for (int n = 0; n < 4; ++n) below += nic(std::to_string(80 + n), n);
  const topo::Graph graph = graph_of(machine(cpu(bridge("a0", below))));
  const topo::Paths paths = topo::compute_paths(graph);
  const auto nets = graph.of(NodeType::net);
  const int a = by_bus(graph, "1"), b = by_bus(graph, "2");
  const auto take = [&](int gpu, const std::string& text) {
    topo::NetDevsPolicy policy;
    REQUIRE(topo::parse(text, policy));
    return topo::local_nets(graph, paths, gpu, policy);
  };
  CHECK(take(a, "AUTO") == std::vector{nets[0], nets[1]});
  CHECK(take(b, "auto") == std::vector{nets[2], nets[3]});
  CHECK(take(b, "ALL") == std::vector{nets[2], nets[3], nets[0], nets[1]});
  CHECK(take(a, "max:1") == std::vector{nets[0]});
  CHECK(take(a, "MAX:9").size() == 4);
  CHECK(topo::local_net(graph, paths, b, 3) == nets[3]);
  topo::NetDevsPolicy policy;
  for (const char* wrong : {"", "MAX:", "MAX:0", "MAX:-1", "MAX:2x", "SOME"}) {
    CHECK_FALSE(topo::parse(wrong, policy));
  }
}

TEST_CASE("C2C to the CPU makes its NICs near") {
  const topo::Graph graph =
      graph_of(machine(cpu(gpu("1", 0, "<c2c bw=\"450000\" count=\"1\"/>", 90) + nic("8", 0))));
  const topo::Paths paths = topo::compute_paths(graph);
  const int a = by_bus(graph, "1");
  const int net = graph.of(NodeType::net)[0];
  CHECK(paths.at(a, graph.of(NodeType::cpu)[0]).type == PathType::c2c);
  CHECK(paths.at(a, net).type == PathType::p2c);
  CHECK(topo::check_gdr(graph, paths, {}, a, net, false).allowed);
}

TEST_CASE("trimming keeps what the rank can use") {
  const topo::Graph graph = graph_of(two_sockets);
  const topo::Paths paths = topo::compute_paths(graph);
  CHECK(topo::trim(graph, paths, 0, 4).of(NodeType::net).size() == 1);
  const topo::Graph alone = topo::trim(graph, paths, 0, 2);
  CHECK(alone.of(NodeType::net).empty());
  CHECK(alone.of(NodeType::gpu).size() == 2);
  topo::PathRules apart;
  apart.p2p_disabled = true;
  apart.shm_disabled = true;
  const topo::Graph split = topo::trim(graph, topo::compute_paths(graph, apart), 1, 2);
  REQUIRE(split.of(NodeType::gpu).size() == 1);
  CHECK(split.nodes[split.of(NodeType::gpu)[0]].gpu.rank == 1);
  CHECK(split.of(NodeType::net).size() == 1);
}

TEST_CASE("ranks on CPUs take the place of GPUs") {
  topo::Graph graph = graph_of(machine(cpu("", 0) + cpu("", 1)));
  topo::add_cpu_ranks(graph, 4);
  const topo::Paths paths = topo::compute_paths(graph);
  const auto positions = graph.of(NodeType::gpu);
  REQUIRE(positions.size() == 4);
  CHECK(paths.at(positions[0], positions[1]).type == PathType::loc);
  CHECK(paths.at(positions[0], positions[2]).type == PathType::sys);
}
