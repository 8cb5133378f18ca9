#include <ccl/topo/discover.hpp>
#include <ccl/topo/lint.hpp>
#include <ccl/topo/path.hpp>

#include "support/catch.hpp"
#include "support/fake_machine.hpp"
#include "support/skip.hpp"

namespace topo = ccl::topo;
namespace fs = std::filesystem;
using ccl::test::FakeMachine;
using topo::NodeType;
using topo::PathType;

namespace {

topo::LoadedGraph graph_of(const topo::DiscoverOptions& options) {
  const auto file = topo::discover(options);
  REQUIRE(file);
  auto loaded = topo::to_graph(*file);
  if (!loaded) FAIL(loaded.error().what);
  return *loaded;
}

}  // namespace

TEST_CASE("a machine with a switch, GPUs and an InfiniBand NIC is seen") {
  FakeMachine fake;
  fake.numa(0, "00ff");
  fake.numa(1, "ff00");
  fake.numa(2, "0000");  // memory only
  const std::string up = "pci0000:10/0000:10:01.0/0000:11:00.0/";
  fake.pci("pci0000:10/0000:10:01.0", "0x060400", 0);
  fake.pci("pci0000:10/0000:10:01.0/0000:11:00.0", "0x060400", 0);
  fake.pci(up + "0000:12:00.0", "0x060400", 0);
  fake.pci(up + "0000:12:01.0", "0x060400", 0);
  fake.pci(up + "0000:12:00.0/0000:13:00.0", "0x030200", 0);
  const std::string nic = fake.pci(up + "0000:12:01.0/0000:14:00.0", "0x020700", 0);
  fake.pci("pci0000:80/0000:80:01.0", "0x060400", 1, "8.0 GT/s PCIe", "8");
  fake.pci("pci0000:80/0000:80:01.0/0000:81:00.0", "0x030200", 1);
  fake.file("sys/class/infiniband/mlx5_0/node_guid", "0c42:a103:0012:3456\n");
  fake.file("sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n");
  fake.file("sys/class/infiniband/mlx5_0/ports/1/rate", "200 Gb/sec (4X HDR)\n");
  fake.file("sys/class/infiniband/mlx5_0/ports/2/state", "1: DOWN\n");
  fake.device("sys/class/infiniband/mlx5_0/device", nic);
  fake.file("sys/module/nvidia_peermem/version", "1\n");
  auto options = fake.options();
  topo::DiscoveredNic port;
  port.name = "mlx5_0";
  port.mbps = 100000;  // the kernel knows of 200
  options.nics->push_back(port);
  options.gpus->push_back({"0000:13:00.0", 0, 90, {{"0000:81:00.0", 4}, {"", 2}}});
  options.gpus->push_back({"0000:81:00.0", 1, 90, {{"0000:13:00.0", 4}, {"", 2}}});

  const topo::LoadedGraph loaded = graph_of(options);
  const topo::Graph& graph = loaded.graph;
  CHECK(loaded.repairs.empty());
  REQUIRE(graph.of(NodeType::cpu).size() == 2);
  CHECK(graph.nodes[graph.of(NodeType::cpu)[1]].cpu.affinity == "ff00");
  CHECK(graph.nodes[graph.of(NodeType::cpu)[0]].cpu.model == 143);
  const auto gpus = graph.of(NodeType::gpu);
  const auto nets = graph.of(NodeType::net);
  REQUIRE(gpus.size() == 2);
  REQUIRE(nets.size() == 1);
  CHECK(graph.nodes[nets[0]].net.bw == 25);
  CHECK(graph.nodes[nets[0]].net.guid == 0x0c42a10300123456ULL);
  CHECK(graph.of(NodeType::pci).size() == 1);
  CHECK(graph.of(NodeType::nvs).size() == 1);
  const topo::Paths paths = topo::compute_paths(graph);
  CHECK(paths.at(gpus[0], gpus[1]).type == PathType::nvl);
  CHECK(paths.at(gpus[0], nets[0]).type == PathType::pix);
  CHECK(paths.at(gpus[1], graph.of(NodeType::cpu)[1]).bw == 6);  // its port is 8 GT/s x8
  bool narrow = false;
  for (const topo::Finding& finding : topo::lint(loaded)) {
    narrow = narrow || finding.problem.find("6 GB/s of PCIe, others have 24") != std::string::npos;
  }
  CHECK(narrow);
}

TEST_CASE("a machine without GPUs and InfiniBand has its CPUs and interfaces") {
  FakeMachine fake;
  const std::string nic = fake.pci("pci0000:00/0000:00:03.0", "0x020000", -1, "Unknown", "255");
  fake.file("sys/class/net/eth0/operstate", "up\n");
  fake.file("sys/class/net/eth0/speed", "25000\n");
  fake.file("sys/class/net/lo/operstate", "unknown\n");
  fake.file("sys/class/net/down0/operstate", "down\n");
  fs::create_directories(nic);
  fake.file(nic + "/virtio0/x", "");
  fake.device("sys/class/net/eth0/device", nic + "/virtio0");
  topo::LoadedGraph loaded = graph_of(fake.options());
  REQUIRE(loaded.graph.of(NodeType::cpu).size() == 1);
  REQUIRE(loaded.graph.of(NodeType::net).size() == 1);
  CHECK(loaded.graph.nodes[loaded.graph.of(NodeType::net)[0]].net.name == "eth0");
  CHECK(loaded.graph.of(NodeType::gpu).empty());
  topo::add_cpu_ranks(loaded.graph, 3);
  CHECK(topo::compute_paths(loaded.graph)
            .at(loaded.graph.of(NodeType::gpu)[0], loaded.graph.of(NodeType::net)[0])
            .reaches());
}

TEST_CASE("an end of a PCIe link without a speed leaves that of the other") {
  FakeMachine fake;
  fake.pci("pci0000:10/0000:10:01.0", "0x060400", 0, "16.0 GT/s PCIe");
  fake.pci("pci0000:10/0000:10:01.0/0000:11:00.0", "0x030200", 0, "Unknown");
  fake.pci("pci0000:20/0000:20:01.0", "0x060400", 0, "Unknown speed");
  fake.pci("pci0000:20/0000:20:01.0/0000:21:00.0", "0x030200", 0, "32.0 GT/s PCIe");
  auto options = fake.options();
  options.gpus->push_back({"0000:11:00.0", 0, 90, {}});
  options.gpus->push_back({"0000:21:00.0", 1, 90, {}});
  const topo::LoadedGraph loaded = graph_of(options);
  CHECK(loaded.repairs.empty());
  const auto gpus = loaded.graph.of(NodeType::gpu);
  REQUIRE(gpus.size() == 2);
  const topo::Paths paths = topo::compute_paths(loaded.graph);
  const int cpu = loaded.graph.of(NodeType::cpu)[0];
  CHECK(paths.at(gpus[0], cpu).bw == 24);
  CHECK(paths.at(gpus[1], cpu).bw == 48);
}

TEST_CASE("this machine is seen, whatever it is") {
  const topo::LoadedGraph loaded = graph_of({});
  CHECK_FALSE(loaded.graph.of(NodeType::cpu).empty());
  const auto again = topo::parse_xml(topo::print_xml(topo::to_xml(loaded.graph)), "dump");
  REQUIRE(again);
  CHECK(topo::to_graph(*again));
  for (const topo::Finding& finding : topo::lint(loaded)) CHECK_FALSE(finding.advice.empty());
}

TEST_CASE("RDMA ports are taken in the order of the bus, with speed, guid and GPU direct RDMA") {
  FakeMachine fake;
  const std::string late = fake.pci("pci0000:80/0000:80:01.0", "0x020700", -1);
  const std::string early = fake.pci("pci0000:10/0000:10:01.0", "0x020700", -1);
  const std::string second = fake.pci("pci0000:10/0000:10:01.1", "0x020700", -1);
  fake.device("sys/class/infiniband/mlx5_0/device", late);
  fake.device("sys/class/infiniband/mlx5_1/device", early);
  fake.device("sys/class/infiniband/mlx5_2/device", second);
  fake.file("sys/class/infiniband/mlx5_0/ports/1/rate", "800 Gb/sec (4X XDR)\n");
  fake.file("sys/class/infiniband/mlx5_0/sys_image_guid", "0000:0000:0000:00ab\n");
  fake.file("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX Open Kernel Module\n");
  auto options = fake.options();
  for (const char* name : {"mlx5_0", "mlx5_1", "mlx5_2"}) {
    topo::DiscoveredNic nic;
    nic.name = name;
    nic.mbps = 400000;
    nic.guid = nic.name == "mlx5_0" ? 0 : 0x77;
    nic.max_connections = 1000;
    nic.dma_buf = nic.name != "mlx5_0";
    options.nics->push_back(nic);
  }
  const topo::Graph graph = graph_of(options).graph;
  const auto nets = graph.of(NodeType::net);
  REQUIRE(nets.size() == 3);
  const auto& first = graph.nodes[nets[0]].net;
  CHECK(first.name == "mlx5_1");
  CHECK(first.bw == 50);
  CHECK(first.guid == 0x77);
  CHECK(first.port == 1);
  CHECK(first.gdr);
  CHECK(first.max_connections == 1000);
  CHECK(graph.nodes[nets[1]].net.name == "mlx5_2");
  CHECK(graph.nodes[nets[1]].net.port == 2);  // a second function of the card
  const auto& last = graph.nodes[nets[2]].net;
  CHECK(last.bw == 100);  // from the kernel: faster than libibverbs can report
  CHECK(last.guid == 0xab);
  CHECK_FALSE(last.gdr);  // neither peer memory nor DMA-BUF
  CHECK(graph.nodes[nets[0]].parent == graph.nodes[nets[1]].parent);
}

TEST_CASE("where libibverbs cannot be asked, the kernel's files tell of ports") {
  FakeMachine fake;
  fake.file("sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n");
  fake.file("sys/class/infiniband/mlx5_0/ports/1/rate", "200 Gb/sec (4X HDR)\n");
  fake.file("sys/class/infiniband/mlx5_0/ports/2/state", "1: DOWN\n");
  fake.file("sys/class/infiniband/mlx5_0/node_guid", "0c42:a103:0012:3456\n");
  topo::DiscoverOptions options = fake.options();
  options.nics = std::nullopt;
  const auto asked = topo::verbs_nics();
  REQUIRE(asked);
  CHECK_FALSE((asked->nics.empty() && asked->why.empty()));
  if (asked->asked) return ccl::test::skip("there is a libibverbs, which knows of no fake files");
  const topo::Graph graph = graph_of(options).graph;
  REQUIRE(graph.of(NodeType::net).size() == 1);
  CHECK(graph.nodes[graph.of(NodeType::net)[0]].net.guid == 0x0c42a10300123456ULL);
}

TEST_CASE("interfaces that sockets may not use are no NETs") {
  FakeMachine fake;
  for (const char* name : {"eth0", "eth1"}) {
    fake.file(std::string("sys/class/net/") + name + "/operstate", "up\n");
  }
  auto options = fake.options();
  options.sockets = std::vector<std::string>{"eth1"};
  const topo::Graph graph = graph_of(options).graph;
  REQUIRE(graph.of(NodeType::net).size() == 1);
  CHECK(graph.nodes[graph.of(NodeType::net)[0]].net.name == "eth1");
}

TEST_CASE("GPUs say which fabric they have joined") {
  FakeMachine fake;
  auto options = fake.options();
  for (const int dev : {0, 1, 2}) {
    topo::DiscoveredGpu gpu;
    gpu.bus_id = "0000:0" + std::to_string(dev + 1) + ":00.0";
    gpu.dev = dev;
    gpu.sm = 100;
    gpu.links = {{"", 18}};
    gpu.fabric = dev < 2 ? "ab:1" : "ab:2";
    options.gpus->push_back(gpu);
  }
  const topo::Graph graph = graph_of(options).graph;
  const auto gpus = graph.of(NodeType::gpu);
  REQUIRE(graph.of(NodeType::nvs).size() == 2);  // one for each clique
  const topo::Paths paths = topo::compute_paths(graph);
  CHECK(paths.wired(gpus[0], gpus[1]).type == PathType::nvl);
  CHECK(paths.wired(gpus[0], gpus[2]).type > PathType::nvl);
  const auto again = topo::parse_xml(topo::print_xml(topo::to_xml(graph)), "dump");
  REQUIRE(again);
  CHECK(topo::to_graph(*again)->graph.of(NodeType::nvs).size() == 2);
}
