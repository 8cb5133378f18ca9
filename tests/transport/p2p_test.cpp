#include <ccl/transport/p2p.hpp>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "support/driver.hpp"
#include "support/error_matchers.hpp"
#include "topo/graph/p2p_path.hpp"
#include <unistd.h>

using namespace ccl;
using namespace ccl::test;

// Tests that need GPUs are in tests/gpu/communicator_test.cu.
namespace {
PeerInfo gpu_rank(int rank, cuda::std::int64_t bus_id) {
  PeerInfo info = info_of(rank);
  info.device = rank;
  info.bus_id = bus_id;
  info.compute_capability = 90;
  return info;
}
std::string refusal(const PeerInfo& a, const PeerInfo& b) {
  const auto answer = P2pTransport::can_connect(a, b);
  REQUIRE(!answer);
  CHECK(answer.error().code == Errc::no_transport);
  return answer.error().what;
}
}  // namespace

TEST_CASE("CPU ranks are refused, and told what would work") {
  CHECK(mentions(refusal(info_of(0), info_of(1)), "shm or socket would"));
  CHECK(mentions(refusal(gpu_rank(0, 0x1b000), info_of(1)), "shm or socket would"));
}

TEST_CASE("GPUs of different hosts are refused") {
  const PeerInfo a = gpu_rank(0, 0x1b000);
  PeerInfo b = gpu_rank(1, 0x1b000);
  b.host_hash = a.host_hash + 1;
  CHECK(mentions(refusal(a, b), "different hosts"));
}

TEST_CASE("CCL_P2P_DISABLE refuses every pair; two ranks of one GPU connect without it") {
  const PeerInfo a = gpu_rank(0, 0x1b000), b = gpu_rank(1, 0x1b000);
  CHECK(P2pTransport::can_connect(a, b));
  ::setenv("CCL_P2P_DISABLE", "1", 1);
  CHECK(mentions(refusal(a, b), "CCL_P2P_DISABLE"));
  ::unsetenv("CCL_P2P_DISABLE");
}

TEST_CASE("set-up without a GPU is an error that names both ranks") {
  TransportContext context;
  const PeerInfo a = info_of(0), b = info_of(1);
  const auto end = P2pTransport::setup(context, edge_of(a, b, EdgeSide::receiver, {1, 8, 1024}, 1));
  REQUIRE(!end);
  CHECK(end.error().code == Errc::invalid_usage);
  CHECK(end.error().rank == 1);
  CHECK(end.error().peer == 0);
}

TEST_CASE("CCL_P2P_LEVEL is a path type or one of NCCL's numbers") {
  using topo::PathType;
  const auto level = [](const char* text) {
    ::setenv("CCL_P2P_LEVEL", text, 1);
    const auto read = detail::p2p_level();
    ::unsetenv("CCL_P2P_LEVEL");
    return read ? read->value_or(PathType::dis) : PathType::net;
  };
  CHECK(detail::p2p_level().value() == std::nullopt);
  CHECK(level("LOC") == PathType::loc);
  CHECK(level("nvl") == PathType::nvl);
  CHECK(level("PHB") == PathType::phb);
  // No path between two GPUs has these types, but the setting can have them, like NCCL's.
  CHECK(level("P2C") == PathType::p2c);
  CHECK(level("PXN") == PathType::pxn);
  CHECK(level("0") == PathType::loc);
  CHECK(level("2") == PathType::pxb);
  CHECK(level("3") == PathType::phb);
  CHECK(level("4") == PathType::sys);
  CHECK(level("5") == PathType::sys);
  CHECK(level("6") == PathType::sys);
  CHECK(level("100") == PathType::sys);
  CHECK(level("-1") == PathType::net);
  CHECK(level("far") == PathType::net);
}

TEST_CASE("the places of two PCI devices say how far apart they are") {
  // Two sockets; below the first, two ports, one of them with a switch that has a switch below.
  namespace fs = std::filesystem;
  const fs::path sysfs = fs::temp_directory_path() / ("ccl-p2p-" + std::to_string(::getpid()));
  const auto add = [&](const std::string& bridges, const std::string& device, int node) {
    const fs::path folder = sysfs / "devices" / bridges / device;
    fs::create_directories(folder);
    fs::create_directories(sysfs / "bus/pci/devices");
    std::ofstream{folder / "numa_node"} << node << '\n';
    fs::create_directory_symlink(folder, sysfs / "bus/pci/devices" / device);
  };
  const std::string port = "pci0000:17/0000:17:01.0", up = port + "/0000:18:00.0";
  add(up + "/0000:19:00.0", "0000:1a:00.0", 0);
  add(up + "/0000:19:01.0", "0000:1b:00.0", 0);
  add(up + "/0000:19:02.0/0000:1c:00.0/0000:1d:00.0", "0000:1e:00.0", 0);
  add("pci0000:17/0000:17:02.0", "0000:1f:00.0", 0);
  add("pci0000:20/0000:20:01.0", "0000:21:00.0", 0);
  add("pci0000:a0/0000:a0:01.0", "0000:a1:00.0", 1);
  add("pci0000:b0/0000:b0:01.0", "0000:b1:00.0", -1);
  const auto path = [&](const char* a, const char* b) {
    const auto there = detail::pci_path(sysfs.string(), a, b);
    CHECK(detail::pci_path(sysfs.string(), b, a) == there);
    return detail::path_text(there);
  };
  CHECK(path("0000:1a:00.0", "0000:1a:00.0") == "LOC");
  CHECK(path("0000:1a:00.0", "0000:1b:00.0") == "PIX");
  CHECK(path("0000:1a:00.0", "0000:1e:00.0") == "PXB");
  CHECK(path("0000:1a:00.0", "0000:1f:00.0") == "PHB");
  CHECK(path("0000:1a:00.0", "0000:21:00.0") == "PHB");
  CHECK(path("0000:1a:00.0", "0000:a1:00.0") == "SYS");
  CHECK(path("0000:1a:00.0", "0000:b1:00.0") == "SYS");
  CHECK(path("0000:1a:00.0", "0000:ff:00.0") == "unknown");
  fs::remove_all(sysfs);
}

TEST_CASE("a level refuses what is farther, and lines land whole only where that is proven") {
  const PeerInfo a = gpu_rank(0, 0x1b000), b = gpu_rank(1, 0x1b000), c = gpu_rank(2, 0xfff1c000);
  ::setenv("CCL_P2P_LEVEL", "SYS", 1);
  CHECK(mentions(refusal(a, c), "their path is unknown, and CCL_P2P_LEVEL is SYS"));
  ::setenv("CCL_P2P_LEVEL", "LOC", 1);
  CHECK(P2pTransport::can_connect(a, b));
  ::unsetenv("CCL_P2P_LEVEL");
  CHECK(P2pTransport::edge_transport(a, b).line_bytes == 128);
  CHECK(P2pTransport::edge_transport(a, c).line_bytes == 16);
  CHECK(P2pTransport::edge_transport(info_of(0), info_of(1)).line_bytes == 16);
}

TEST_CASE("lines land whole from sm_70 on, and between unlike GPUs from sm_90 on") {
  const auto lines = [](int first, int second) {
    PeerInfo a = gpu_rank(0, 0x1b000), b = gpu_rank(1, 0x1b000);
    a.compute_capability = first;
    b.compute_capability = second;
    CHECK(P2pTransport::edge_transport(b, a).line_bytes ==
          P2pTransport::edge_transport(a, b).line_bytes);
    return P2pTransport::edge_transport(a, b).line_bytes;
  };
  for (const int equal : {70, 75, 80, 86, 89, 90, 100, 103, 120}) CHECK(lines(equal, equal) == 128);
  CHECK(lines(60, 60) == 16);
  CHECK(lines(80, 90) == 16);
  CHECK(lines(90, 100) == 128);
}

TEST_CASE("two instances of one GPU are two GPUs without a path between them") {
  PeerInfo a = gpu_rank(0, 0x1b000), b = gpu_rank(1, 0x1b000);
  a.gpu = 1;
  b.gpu = 2;
  CHECK(mentions(refusal(a, b), "two instances (MIG) of one GPU"));
  CHECK(mentions(refusal(a, b), "shm would"));
  CHECK(P2pTransport::edge_transport(a, b).line_bytes == 16);
  CHECK(detail::gpu_path(a, b) == topo::PathType::phb);
}
