#include "topo/search/relays.hpp"

#include <filesystem>
#include <fstream>
#include <string>

#include "gpu/devices.hpp"
#include "support/catch.hpp"
#include "support/environment.hpp"
#include "support/room/shapes.hpp"
#include <unistd.h>

using namespace ccl;
using namespace ccl::test;

namespace {

constexpr int per_host = 3;

/// Ranks of two hosts with three GPUs each. The last GPU has the only NIC at its switch.
struct Hosts {
  Hosts() {
    for (int r = 0; r < 2 * per_host; ++r) {
      PeerInfo& peer = peers.emplace_back();
      peer.rank = r;
      peer.device = 0;
      peer.host_hash = 7 + std::uint64_t(r / per_host);
      peer.compute_capability = 90;
      peer.bus_id = 0x10000 + 0x1000 * std::int64_t(r % per_host);
      topo::GpuReport& sight = sights.emplace_back();
      sight.seen = 1;
      sight.dev = r % per_host;
      sight.sm = 90;
      sight.sees = std::uint64_t{1} << (r % per_host);
    }
  }
  topo::RankPlacement placement(int rank) const {
    auto made = topo::place_ranks(peers, sights, rank, topo::places_of(peers, rank));
    if (!made) FAIL(made.error().what);
    return *std::move(made);
  }
  bool lends(int rank) const {
    const auto places = topo::places_of(peers, rank);
    const topo::RankPlacement found = placement(rank);
    int place = 0;
    while (places[std::size_t(place)].key != peers[std::size_t(rank)].bus_id) ++place;
    return topo::lends_for_relays(found, peers, sights, rank, places,
                                  found.graph.gpu_of_rank(place));
  }

  std::vector<PeerInfo> peers;
  std::vector<topo::GpuReport> sights;
};

/// The file of a host, as the topology of this process.
class HostFile {
 public:
  HostFile() : environment_{"CCL_TOPO_FILE", path_} {
    room::Shape shape{"one-nic", per_host, 1, 90, 18, 400000, room::intel, "32.0 GT/s PCIe", {}};
    shape.switches = {{0, {0, 1}, {}}, {1, {2}, {0}}};
    std::ofstream{path_} << room::topology(shape, 0, per_host, [](int gpu) {
      return detail::bus_id_text(0x10000 + 0x1000 * std::int64_t(gpu));
    });
  }
  ~HostFile() { std::filesystem::remove(path_); }

 private:
  const std::string path_ =
      (std::filesystem::temp_directory_path() / fmt::format("ccl_relays_{}.xml", ::getpid()))
          .string();
  const Environment environment_;
};

}  // namespace

TEST_CASE("all ranks of a host reach its GPUs if they see them or the ranks there lend memory") {
  Hosts hosts;
  const auto reach = [&](int rank) { return topo::all_reach(hosts.peers, hosts.sights, rank); };
  CHECK_FALSE(reach(0));
  for (int r = 0; r < per_host; ++r) hosts.sights[std::size_t(r)].lends = 1;
  for (int r = 0; r < per_host; ++r) CHECK(reach(r));
  CHECK_FALSE(reach(per_host));  // the other host
  hosts.sights[1].lends = 0;
  CHECK_FALSE(reach(0));
  hosts.sights[0].sees = hosts.sights[2].sees = 0b111;  // so that nobody needs a loan of rank 1
  for (int r = 0; r < per_host; ++r) CHECK(reach(r));
  for (int r = 0; r < per_host; ++r) hosts.sights[std::size_t(r)].lends = 0;
  CHECK_FALSE(reach(0));  // rank 1 sees its own only
  hosts.sights[1].sees = 0b111;
  CHECK(reach(0));
}

TEST_CASE("a rank lends memory if one that does not see its GPU sends over it") {
  const HostFile file;
  Hosts hosts;
  for (auto& sight : hosts.sights) sight.lends = 1;
  CHECK_FALSE(hosts.lends(0));
  CHECK_FALSE(hosts.lends(1));
  CHECK(hosts.lends(2));
  CHECK_FALSE(hosts.lends(3));
  CHECK(hosts.lends(5));
  hosts.sights[0].sees = 0b111;
  CHECK(hosts.lends(2));  // for rank 1
  hosts.sights[1].sees = 0b101;
  CHECK_FALSE(hosts.lends(2));
  CHECK(hosts.placement(0).rules.pxn);
  hosts.sights[1].sees = 0b010;
  for (auto& sight : hosts.sights) sight.lends = 0;
  CHECK_FALSE(hosts.lends(2));
  CHECK_FALSE(hosts.placement(0).rules.pxn);
}
