// As many GPUs as an NVLink domain has, on nine hosts that reach each other by RDMA alone, and
// algorithms on the two levels of hosts.
#define CCL_PLAYED_WARP 2  // lanes of a warp
#include "support/played/played_gpus.hpp"
// Kernels come before other headers of ccl.
#include <ccl/algo/hierarchical.hpp>
#include <ccl/algo/pairwise.hpp>
#include <ccl/algo/ring.hpp>
#include <ccl/algo/tree.hpp>
#include <ccl/collective.cuh>
#include <ccl/hierarchical.hpp>

#include <set>
#include <vector>

#include "support/room/room.hpp"
#include "support/room/traffic.hpp"

using namespace ccl;
using namespace ccl::test;
using room::moved_by;
using room::small;
using room::Ways;

namespace {
constexpr double evenly = 0.05;
const std::set<int> all_nics{0, 1, 2, 3, 4, 5, 6, 7};

void check_even(const room::Room& hosts, const std::vector<room::Traffic>& moved) {
  CHECK(room::unevenness(moved, hosts.shape().nics) < evenly);
  for (int h = 0; h < hosts.hosts(); ++h) {
    CHECK(room::busy(moved, h, hosts.shape().nics) == all_nics);
  }
}
}  // namespace

TEST_CASE("72 GPUs on 9 hosts reduce, gather and broadcast by all NICs alike") {
  room::Room hosts{room::dgx(), 9};
  auto ranks = hosts.create_ranks();
  if (!ranks[0]) FAIL(ranks[0].error().message());
  const int rings = ranks[0]->ring_count();
  const Index share = 256;  // elements of a rank in a ring
  check_even(hosts, moved_by(hosts, "AllReduce by rings", [&] {
               played::all_reduces<Ring, Simple, Ways>(ranks, rings * 72 * 32, small(rings), 1);
             }));
  check_even(hosts, moved_by(hosts, "AllGather by rings", [&] {
               played::all_gathers<Ring, Simple, Ways>(ranks, rings * share, small(rings), 1);
             }));
  check_even(hosts, moved_by(hosts, "ReduceScatter by rings", [&] {
               played::reduce_scatters<Ring, Simple, Ways>(ranks, rings * share, small(rings), 1);
             }));
  const int last = int(ranks.size()) - 1;
  played::all_reduces<Tree, Simple, Ways>(ranks, rings * 512, small(2 * rings), 1);
  played::broadcasts<Ring, Simple, Ways>(ranks, 1000, last, small(rings), 1);
  played::reduces<Tree, Simple, Ways>(ranks, 1000, last, small(2 * rings), 1);
}

// All pairs of 72 take more descriptors than a process has: 40 take about 10,000.
TEST_CASE("40 GPUs on 5 hosts exchange messages between all pairs, by all NICs alike") {
  room::Room hosts{room::dgx(), 5};
  auto ranks = hosts.create_ranks();
  if (!ranks[0]) FAIL(ranks[0].error().message());
  const int last = int(ranks.size()) - 1;
  constexpr Plan least{.channels = 1, .slot_count = 2, .slot_bytes = 1 << 10};
  check_even(hosts, moved_by(hosts, "AllToAll", [&] {
               played::all_to_alls<Pairwise, Simple, Ways>(ranks, 128, least, 1);
             }));
  check_even(hosts, moved_by(hosts, "SendRecv with the next host", [&] {
               played::send_recvs<Pairwise, Simple, Ways>(ranks, 2048, least, 1, 8);
             }));
  played::gathers<Pairwise, Simple, Ways>(ranks, 100, last, least, 1);
  played::scatters<Pairwise, Simple, Ways>(ranks, 100, last, least, 1);
}

TEST_CASE("algorithms on two levels go by all NICs alike") {
  constexpr int count = 2;
  room::Room hosts{room::dgx(), count};
  auto ranks = hosts.create_ranks();
  if (!ranks[0]) FAIL(ranks[0].error().message());
  using Rings = Hierarchical<Ring, Ring>;
  const Index each = 8 * count * 1024;
  check_even(hosts, moved_by(hosts, "AllReduce on levels", [&] {
               played::all_reduces<Rings, Simple, Ways>(ranks, each, {}, 1);
             }));
  check_even(hosts, moved_by(hosts, "AllGather on levels", [&] {
               played::all_gathers<Rings, Simple, Ways>(ranks, 1024, {}, 1);
             }));
  check_even(hosts, moved_by(hosts, "ReduceScatter on levels", [&] {
               played::reduce_scatters<Rings, Simple, Ways>(ranks, 1024, {}, 1);
             }));
}
