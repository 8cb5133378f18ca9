#include <ccl/topo/discover.hpp>
#include <ccl/topo/path.hpp>

#include <filesystem>
#include <fstream>

#include "catch.hpp"
#include <unistd.h>

namespace topo = ccl::topo;
namespace fs = std::filesystem;
using topo::NodeType;
using topo::PathType;

namespace {

/// A made-up /sys and /proc, gone with the object.
class FakeMachine {
 public:
  FakeMachine() : root_(fs::temp_directory_path() / ("ccl_discover_" + std::to_string(getpid()))) {
    fs::remove_all(root_);
    file("proc/cpuinfo",
         "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\nmodel "
         "name\t: x\n\n");
  }
  ~FakeMachine() {
    std::error_code ignored;
    fs::remove_all(root_, ignored);
  }
  void file(const std::string& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  void numa(int node, const std::string& map) {
    file("sys/devices/system/node/node" + std::to_string(node) + "/cpumap", map + "\n");
  }
  std::string pci(const std::string& path, const std::string& device_class, int node,
                  const std::string& speed = "16.0 GT/s PCIe", const std::string& width = "16") {
    const std::string full = "sys/devices/" + path;
    file(full + "/class", device_class + "\n");
    file(full + "/vendor", "0x10de\n");
    file(full + "/numa_node", std::to_string(node) + "\n");
    file(full + "/max_link_speed", speed + "\n");
    file(full + "/max_link_width", width + "\n");
    const std::string id = fs::path(path).filename();
    fs::create_directories(root_ / "sys/bus/pci/devices");
    fs::create_directory_symlink(root_ / full, root_ / "sys/bus/pci/devices" / id);
    return full;
  }
  void device(const std::string& from, const std::string& to) {
    fs::create_directories((root_ / from).parent_path());
    fs::create_directory_symlink(root_ / to, root_ / from);
  }
  topo::DiscoverOptions options() const {
    topo::DiscoverOptions options;
    options.sys = (root_ / "sys").string();
    options.proc = (root_ / "proc").string();
    options.gpus.emplace();
    return options;
  }

 private:
  fs::path root_;
};

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
  for (const topo::Remark& remark : topo::lint(loaded, false)) {
    narrow = narrow || remark.problem.find("6 GB/s of PCIe, others have 24") != std::string::npos;
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

TEST_CASE("this machine is seen, whatever it is") {
  const topo::LoadedGraph loaded = graph_of({});
  CHECK_FALSE(loaded.graph.of(NodeType::cpu).empty());
  const auto again = topo::parse_xml(topo::print_xml(topo::to_xml(loaded.graph)), "dump");
  REQUIRE(again);
  CHECK(topo::to_graph(*again));
  for (const topo::Remark& remark : topo::lint(loaded, true)) CHECK_FALSE(remark.advice.empty());
}
