#include <ccl/topo/explain.hpp>
#include <ccl/topo/xml.hpp>

#include <string>

#include "support/catch.hpp"
#include "support/error_matchers.hpp"
#include "support/graph_of.hpp"

namespace topo = ccl::topo;
using ccl::test::graph_of;
using ccl::test::mentions;

namespace {

/// Two GPUs with NVLink on one CPU, a third on the other CPU, and a NIC next to GPU 0.
topo::Graph machine() {
  return graph_of(R"(<system version="1">
  <cpu numaid="0" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="106">
    <pci busid="0000:10:00.0" class="0x060400" link_speed="16.0 GT/s PCIe" link_width="16">
      <pci busid="0000:11:00.0" link_speed="16.0 GT/s PCIe" link_width="16"><gpu dev="0" sm="80" rank="0" gdr="1"><nvlink target="0000:20:00.0" count="12" tclass="0x030200"/></gpu></pci>
      <pci busid="0000:12:00.0" link_speed="16.0 GT/s PCIe" link_width="16"><nic><net name="mlx5_0" dev="0" speed="200000" port="1" guid="0x1" gdr="1"/></nic></pci>
    </pci>
    <pci busid="0000:20:00.0" link_speed="16.0 GT/s PCIe" link_width="16"><gpu dev="1" sm="80" rank="1" gdr="1"><nvlink target="0000:11:00.0" count="12" tclass="0x030200"/></gpu></pci>
  </cpu>
  <cpu numaid="1" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="106">
    <pci busid="0000:30:00.0" link_speed="16.0 GT/s PCIe" link_width="16"><gpu dev="2" sm="80" rank="2" gdr="1"/></pci>
  </cpu>
</system>)");
}

std::string text(const topo::PathRules& rules, int a, int b) {
  const topo::Graph graph = machine();
  const topo::Paths paths = topo::compute_paths(graph, rules);
  const auto end = [&](int n) {
    return n >= 0 ? graph.gpu_of_rank(n) : graph.of(topo::NodeType::net)[0];
  };
  std::string all;
  for (const std::string& line : topo::explain(graph, paths, rules, end(a), end(b))) {
    all += line + "\n";
  }
  return all;
}

}  // namespace

TEST_CASE("GPUs with NVLink: why that, and what else there is") {
  const std::string all = text({}, 0, 1);
  INFO(all);
  CHECK(mentions(all, "GPU/0-11000 --NVL(240)->GPU/0-20000 (240 GB/s, NVL)"));
  CHECK(mentions(all, "NVLink alone comes first"));
  CHECK(mentions(all,
                 "without NVLink: --PCI(24)->PCI/0-10000--PCI(24)->CPU/0-0--PCI(24)->GPU/0-20000"));
  CHECK(mentions(all, "P2P: yes"));
  CHECK(mentions(all, "reads instead of being written to"));
  CHECK(mentions(all, "transport: P2P"));
}

TEST_CASE("CPU ranks of one CPU are not said to be one device, or to have NVLink") {
  topo::Graph graph = machine();
  for (const int gpu : graph.of(topo::NodeType::gpu)) graph.nodes[gpu].gpu.rank = -1;
  topo::add_cpu_ranks(graph, 4);
  const topo::Paths paths = topo::compute_paths(graph, {});
  std::string all;
  for (const std::string& line :
       topo::explain(graph, paths, {}, graph.gpu_of_rank(0), graph.gpu_of_rank(1))) {
    all += line + "\n";
  }
  INFO(all);
  CHECK(mentions(all, "LOC: memory of one CPU"));
  CHECK_FALSE(mentions(all, "NVLink alone comes first"));
  CHECK_FALSE(mentions(all, "the same device"));
}

TEST_CASE("without NVLink, GPUs of two hosts have the network") {
  const auto host = [](int rank) {
    return "<cpu host_hash=\"0x" + std::to_string(rank + 1) +
           R"(" numaid="0" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="106">)"
           R"(<pci busid="0000:11:00.0" link_speed="16.0 GT/s PCIe" link_width="16">)"
           R"(<gpu dev="0" sm="90" gdr="1" rank=")" +
           std::to_string(rank) + R"("><nvlink target="f" count="18" tclass="0x068000"/></gpu>)" +
           "</pci></cpu>";
  };
  const topo::Graph graph = graph_of("<system version=\"1\">" + host(0) + host(1) + "</system>");
  const topo::Paths paths = topo::compute_paths(graph, {});
  std::string all;
  for (const std::string& line :
       topo::explain(graph, paths, {}, graph.gpu_of_rank(0), graph.gpu_of_rank(1))) {
    all += line + "\n";
  }
  INFO(all);
  CHECK(mentions(all, "without NVLink: to GPU/1-11000 over the network (NET)"));
}

TEST_CASE("GPUs of different sockets: the narrowest link, and why no P2P") {
  const std::string all = text({}, 0, 2);
  INFO(all);
  CHECK(mentions(all, "(10 GB/s, SYS)"));
  CHECK(mentions(all, "narrowest link: SYS 10 GB/s, CPU/0-0 to CPU/0-1"));
  CHECK(mentions(all, "P2P: no (path SYS is worse than PXB, the worst for P2P on this machine)"));
  CHECK(mentions(all, "transport: SHM"));
  topo::PathRules no_memory;
  no_memory.shm_disabled = true;
  CHECK(mentions(text(no_memory, 0, 2),
                 "transport: NET (P2P is refused and shared memory disabled)"));
}

TEST_CASE("P2P switched off changes the way, and that is said") {
  topo::PathRules rules;
  rules.p2p_disabled = true;
  const std::string all = text(rules, 0, 1);
  INFO(all);
  CHECK(mentions(all, "as wired: --NVL(240)->GPU/0-20000 (240 GB/s, NVL)"));
  CHECK(mentions(all, "not taken, since P2P is refused"));
  CHECK(mentions(all, "P2P: no (P2P is disabled)"));
}

TEST_CASE("GPU to NIC: relayed by the NIC's GPU, and GPU direct RDMA") {
  const std::string relayed = text({}, 1, -1);
  INFO(relayed);
  CHECK(mentions(relayed, "PXN: through a GPU that is next to the NIC"));
  CHECK(mentions(relayed, "taken instead, since the NIC's own GPU gets it"));
  const std::string direct = text({}, 0, -1);
  INFO(direct);
  CHECK(mentions(direct, "GPU direct RDMA for sending: yes (distance PIX <= P2C)"));
  CHECK(mentions(direct, "transport: NET, by mlx5_0 with the GPU's own memory"));
  const std::string far = text({}, 2, -1);
  INFO(far);
  CHECK(mentions(far, "GPU direct RDMA for sending: no (distance SYS > P2C)"));
  CHECK(mentions(far, "a copy in host memory"));
  CHECK(mentions(text({}, -1, 0), "transport: NET, by mlx5_0"));
}
