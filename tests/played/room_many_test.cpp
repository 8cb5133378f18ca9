// As many GPUs as an NVLink domain has, on nine hosts that reach each other by RDMA alone, and
// algorithms on the two levels of hosts.
#include <set>
#include <vector>

#include "support/played/played_gpus.hpp"
#include "support/room/calls.hpp"
#include "support/room/room.hpp"
#include "support/room/traffic.hpp"

using namespace ccl;
using namespace ccl::test;
using room::moved_by;
using room::small;

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
               room::rings::all_reduces(ranks, rings * 72 * 32, small(rings), 1);
             }));
  check_even(hosts, moved_by(hosts, "AllGather by rings", [&] {
               room::rings::all_gathers(ranks, rings * share, small(rings), 1);
             }));
  check_even(hosts, moved_by(hosts, "ReduceScatter by rings", [&] {
               room::rings::reduce_scatters(ranks, rings * share, small(rings), 1);
             }));
  const int last = int(ranks.size()) - 1;
  room::trees::all_reduces(ranks, rings * 512, small(2 * rings), 1);
  room::rings::broadcasts(ranks, 1000, last, small(rings), 1);
  room::trees::reduces(ranks, 1000, last, small(2 * rings), 1);
}

// All pairs of 72 take more descriptors than a process has: 40 take about 10,000.
TEST_CASE("40 GPUs on 5 hosts exchange messages between all pairs, by all NICs alike") {
  room::Room hosts{room::dgx(), 5};
  auto ranks = hosts.create_ranks();
  if (!ranks[0]) FAIL(ranks[0].error().message());
  const int last = int(ranks.size()) - 1;
  constexpr Plan least{.channels = 1, .slot_count = 2, .slot_bytes = 1 << 10};
  check_even(hosts,
             moved_by(hosts, "AllToAll", [&] { room::pairs::all_to_alls(ranks, 128, least, 1); }));
  check_even(hosts, moved_by(hosts, "SendRecv with the next host",
                             [&] { room::pairs::send_recvs(ranks, 2048, least, 1, 8); }));
  room::pairs::gathers(ranks, 100, last, least, 1);
  room::pairs::scatters(ranks, 100, last, least, 1);
}

TEST_CASE("algorithms on two levels go by all NICs alike") {
  constexpr int count = 2;
  room::Room hosts{room::dgx(), count};
  auto ranks = hosts.create_ranks();
  if (!ranks[0]) FAIL(ranks[0].error().message());
  const Index each = 8 * count * 1024;
  check_even(hosts, moved_by(hosts, "AllReduce on levels",
                             [&] { room::levels::all_reduces(ranks, each, {}, 1); }));
  check_even(hosts, moved_by(hosts, "AllGather on levels",
                             [&] { room::levels::all_gathers(ranks, 1024, {}, 1); }));
  check_even(hosts, moved_by(hosts, "ReduceScatter on levels",
                             [&] { room::levels::reduce_scatters(ranks, 1024, {}, 1); }));
}
