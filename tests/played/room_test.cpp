// Bytes per NIC of hosts that are played in one process: the communicator, the search, the plans,
// the proxies and the algorithms are those of a cluster.
#define CCL_PLAYED_WARP 2  // lanes of a warp
#include "support/played/played_gpus.hpp"
// Kernels come before other headers of ccl.
#include <ccl/algo/pairwise.hpp>
#include <ccl/algo/ring.hpp>
#include <ccl/algo/tree.hpp>
#include <ccl/collective.cuh>
#include <ccl/transport/any_of.hpp>
#include <ccl/transport/ib.hpp>
#include <ccl/transport/p2p.hpp>

#include <iostream>

#include "support/room/room.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {
/// NVLink inside a host, RDMA between hosts.
using Ways = AnyOf<P2pTransport, IbTransport>;

constexpr Plan small(int channels) {
  return {.channels = channels, .slot_count = 4, .slot_bytes = 8 << 10};
}

template <class F>
double report(room::Room& hosts, const char* what, F calls) {
  const auto moved = hosts.traffic_of(calls);
  std::cout << hosts.shape().name << ", " << hosts.hosts() << " hosts, " << what << ": KiB sent/received per NIC of host 0: "
            << room::text(moved, hosts.shape().nics) << "\n";
  return room::unevenness(moved);
}
}  // namespace

TEST_CASE("NICs share the bytes of collectives between hosts of 8 GPUs and 8 NICs") {
  for (const int count : {2, 4}) {
    room::Room hosts{room::dgx(), count};
    auto ranks = hosts.create_ranks();
    REQUIRE(ranks[0]);
    const int channels = ranks[0]->ring_count();
    std::cout << channels << " rings\n";
    CHECK(report(hosts, "AllReduce/Ring", [&] {
            played::all_reduces<Ring, Simple, Ways>(ranks, 64 << 10, small(channels), 1);
          }) < 0.05);
    CHECK(report(hosts, "AllReduce/Tree", [&] {
            played::all_reduces<Tree, Simple, Ways>(ranks, 64 << 10, small(2 * channels), 1);
          }) < 0.05);
    CHECK(report(hosts, "AllToAll", [&] {
            played::all_to_alls<Pairwise, Simple, Ways>(ranks, 4 << 10, small(2), 1);
          }) < 0.05);
  }
}
