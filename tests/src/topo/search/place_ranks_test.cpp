// The machine that the ranks of a host make of their reports on their GPUs.
#include "topo/search/place_ranks.hpp"

#include <fmt/format.h>

#include <filesystem>

#include "support/catch.hpp"
#include "support/environment.hpp"
#include <unistd.h>

using namespace ccl;

namespace {

/// Ranks of one host, each with a GPU that its driver reports under these numbers.
struct Host {
  explicit Host(const std::vector<int>& numbers) : peers(numbers.size()), sights(numbers.size()) {
    for (std::size_t r = 0; r < numbers.size(); ++r) {
      PeerInfo& peer = peers[r];
      peer.rank = int(r);
      peer.device = 0;
      peer.host_hash = 7;
      peer.compute_capability = 90;
      peer.bus_id = 0xfe000 + 0x1000 * std::int64_t(numbers.size() - r);  // ranks against the bus
      sights[r].seen = 1;
      sights[r].dev = numbers[r];
      sights[r].sm = 90;
    }
  }

  /// Numbers of the GPUs in the order of the bus, after the machine is made as seen by `rank`.
  std::vector<int> numbers(int rank) const {
    const auto made = topo::place_ranks(peers, sights, rank, topo::places_of(peers, rank));
    if (!made) FAIL(made.error().what);
    std::vector<int> numbers(peers.size(), -1);
    for (const int gpu : made->graph.of(topo::NodeType::gpu)) {
      const auto& node = made->graph.nodes[gpu].gpu;
      numbers.at(std::size_t(node.rank)) = node.dev;
    }
    return numbers;
  }

  std::vector<PeerInfo> peers;
  std::vector<topo::GpuReport> sights;
};

}  // namespace

TEST_CASE("ranks that each see only their own GPU make one machine") {
  const Host host{{0, 0, 0}};
  for (int rank = 0; rank < 3; ++rank) CHECK(host.numbers(rank) == std::vector{0, 1, 2});
}

TEST_CASE("GPUs keep the numbers of a driver that shows all of them") {
  const Host host{{7, 2, 4}};
  CHECK(host.numbers(0) == std::vector{4, 2, 7});
}

TEST_CASE("in a file of several hosts with the same bus ids, the GPUs of all ranks are of one") {
  const auto gpu = [](int rank, const char* bus) {
    return fmt::format(R"(<pci busid="{}" link_speed="32 GT/s" link_width="16">
                       <gpu dev="{}" rank="{}" sm="90"/></pci>)",
                       bus, rank, rank);
  };
  const auto host = [](int number, const std::string& gpus) {
    return fmt::format(R"(<cpu numaid="0" host_hash="{}" arch="x86_64">{}</cpu>)", number, gpus);
  };
  const std::string path =
      (std::filesystem::temp_directory_path() / fmt::format("ccl_hosts_{}.xml", ::getpid()))
          .string();
  REQUIRE(topo::write_file(path, "<system>" +
                                     host(1, gpu(0, "0000:ff:00.0") + gpu(1, "0001:00:00.0")) +
                                     host(2, gpu(2, "0000:ff:00.0")) + "</system>"));
  const ccl::test::Environment file("CCL_TOPO_FILE", path);
  const Host ranks{{0, 1}};  // their bus ids are those of the first host
  const auto made =
      topo::place_ranks(ranks.peers, ranks.sights, 0, topo::places_of(ranks.peers, 0));
  if (!made) FAIL(made.error().what);
  const auto gpus = made->graph.of(topo::NodeType::gpu);
  REQUIRE(gpus.size() == 2);
  for (const int each : gpus) CHECK(made->graph.nodes[each].host == 0);

  const Host more{{0, 1, 2}};
  const auto none = topo::place_ranks(more.peers, more.sights, 0, topo::places_of(more.peers, 0));
  std::filesystem::remove(path);
  REQUIRE_FALSE(none);
  CHECK(none.error().code == Errc::bad_setting);
  CHECK(none.error().what.find("of rank 0 is not in the topology (CCL_TOPO_FILE is of another") !=
        std::string::npos);
}

TEST_CASE("a file that describes the GPUs counts where no driver reports their links") {
  Host ranks{{0, 1, 2, 3}};
  for (topo::GpuReport& sight : ranks.sights) sight.seen = 0;  // as without NVML
  const auto places = topo::places_of(ranks.peers, 0);
  std::string text = R"(<system><cpu numaid="0" arch="x86_64" vendor="GenuineIntel">)";
  for (int gpu = 0; gpu < 4; ++gpu) {  // NVLink joins each two of them
    text += fmt::format(R"(<pci busid="{:x}" link_speed="32 GT/s" link_width="16">
                        <gpu dev="{}" sm="90"><nvlink target="{:x}" count="4" tclass="0x030200"/>
                        </gpu></pci>)",
                        places[std::size_t(gpu)].key, gpu, places[std::size_t(gpu ^ 1)].key);
  }
  const std::string path =
      (std::filesystem::temp_directory_path() / fmt::format("ccl_known_{}.xml", ::getpid()))
          .string();
  const auto look = [&](const std::string& file) {
    const ccl::test::Environment given("CCL_TOPO_FILE", file);
    auto placed = topo::place_ranks(ranks.peers, ranks.sights, 0, places);
    if (!placed) FAIL(placed.error().what);
    const auto machine = topo::channels_of(*placed, places, 0, 4, false);
    if (!machine) FAIL(machine.error().what);
    CHECK(machine->even == !placed->known);
    return placed->known;
  };
  REQUIRE(topo::write_file(path, text + "</cpu></system>"));
  CHECK(look(path));
  REQUIRE(topo::write_file(path, R"(<system><cpu numaid="0" arch="x86_64"/></system>)"));
  std::filesystem::rename(path, path + ".hint");  // a process reads a file once
  CHECK_FALSE(look(path + ".hint"));
  std::filesystem::remove(path + ".hint");
  CHECK_FALSE(look(""));
}

namespace {
/// CPU ranks in the places of four GPUs behind an NVSwitch, of which each two share a NIC. Returns
/// the heads of rank 0's host. `hosts`: equal ones.
std::vector<int> heads_among(int hosts) {
  std::string text =
      R"(<system><cpu numaid="0" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="143">)";
  for (int n = 0; n < 2; ++n) {
    text += fmt::format(R"(<pci busid="a{0}:00.0" link_speed="32 GT/s" link_width="16">
      <pci busid="b{0}:00.0" link_speed="32 GT/s" link_width="16"><nic>
      <net name="n{0}" dev="{0}" speed="400000" guid="0x{0}" gdr="1"/></nic></pci>)",
                        n);
    for (const int gpu : {2 * n, 2 * n + 1}) {
      text += fmt::format(R"(<pci busid="c{0}:00.0" link_speed="32 GT/s" link_width="16">
        <gpu dev="{0}" rank="{0}" sm="90" gdr="1">
        <nvlink target="fffffff:ffff:ff" count="18" tclass="0x068000"/></gpu></pci>)",
                          gpu);
    }
    text += "</pci>";
  }
  const std::string path =
      (std::filesystem::temp_directory_path() / fmt::format("ccl_heads_{}.xml", ::getpid()))
          .string();
  REQUIRE(topo::write_file(path, text + "</cpu></system>"));
  const ccl::test::Environment file("CCL_TOPO_FILE", path);
  std::vector<PeerInfo> peers(std::size_t(4 * hosts));
  for (std::size_t r = 0; r < peers.size(); ++r) {
    peers[r].rank = int(r);
    peers[r].host_hash = r / 4 + 1;
  }
  const auto places = topo::places_of(peers, 0);
  const auto placed = topo::place_ranks(peers, {}, 0, places);
  if (!placed) FAIL(placed.error().what);
  const auto machine = topo::channels_of(*placed, places, 0, int(peers.size()), false);
  if (!machine) FAIL(machine.error().what);
  std::filesystem::remove(path);
  return machine->heads;
}
}  // namespace

TEST_CASE("heads are all GPUs behind an NVSwitch, and between hosts those next to a NIC") {
  CHECK(heads_among(1) == std::vector{0, 1, 2, 3});
  CHECK(heads_among(2) == std::vector{0, 2});
}
