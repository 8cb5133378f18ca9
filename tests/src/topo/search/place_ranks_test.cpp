// The machine that the ranks of a host make of their reports on their GPUs.
#include "topo/search/place_ranks.hpp"

#include "support/catch.hpp"

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
