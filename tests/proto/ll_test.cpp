#include <ccl/algo/one_shot.hpp>
#include <ccl/algo/tree.hpp>
#include <ccl/proto/ll.hpp>

#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include "support/catch.hpp"
#include "support/peer_world.hpp"
#include "support/thread_lanes.hpp"
#include "support/world.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {

constexpr Word wrap = Word{1} << 32;  // of the flags, which have 32 bits
using Sums = detail::Reduction<Sum, int>;

/// Rank 1 comes late, so that the others look at memory that it has not written.
void be_late(int rank) {
  if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds{30});
}

/// Ones of every rank, whose sums are checked on every rank.
struct Ones {
  std::vector<std::vector<int>> in, out;
  Ones(int ranks, Index count)
      : in(std::size_t(ranks), std::vector<int>(std::size_t(count), 1)), out{in} {}
  template <class Work>
  void give(int rank, Work& work) {
    be_late(rank);
    work.input = in[std::size_t(rank)].data();
    work.output = out[std::size_t(rank)].data();
    work.layout = {Index(in.front().size()), 0, 0, false};
  }
  void check() const {
    for (const auto& one : out) {
      CHECK(std::count(one.begin(), one.end(), int(in.size())) == Index(one.size()));
    }
  }
};

}  // namespace

TEST_CASE("a tile arrives with its own flag alone, and not before it is written") {
  using Lane = LL::Lane<detail::SoloLane, 2>;
  const Lane lane{detail::SoloLane{}};
  for (const Word flag : {Word{1}, wrap - 1, wrap, wrap + 1, 2 * wrap}) {
    INFO("flag " << flag);
    alignas(128) Packet tile[Lane::tile_packets]{};
    CHECK(!lane.has_arrived(lane.load(tile), flag));
    lane.store(tile, {{7, ~Word{0}}}, flag);
    const auto arrival = lane.load(tile);
    CHECK(lane.has_arrived(arrival, flag));
    CHECK(lane.unpack(arrival).word[0] == 7);
    CHECK(lane.unpack(arrival).word[1] == ~Word{0});
    for (const Word before : {1, 2, 4, 8}) {
      CHECK(!lane.has_arrived(arrival, flag + before));
      CHECK((flag <= before || !lane.has_arrived(arrival, flag - before)));
    }
  }
}

TEST_CASE("launches over peer memory go on when the count of launches wraps in a flag") {
  constexpr int ranks = 2;
  using Group = detail::SoloLane;
  using Prims = detail::PeerPrims<Group, LL, Sums, 1, ranks>;
  PeerWorld<ranks> world{Prims::half_packets(4000, 1), wrap - 3};
  const Sums sum{Sum{}, ranks};
  for (const Index count : {10, 10, 2000, 4000}) {  // the third launch has tiles of its own
    Ones ones{ranks, count};
    REQUIRE(world.run<AllReduce, OneShot, LL, Group>(
        sum, 1, [&](int rank, auto& work) { ones.give(rank, work); }));
    ones.check();
  }
}

TEST_CASE("steps over wires go on when their count wraps in a flag") {
  constexpr int ranks = 3;
  World world{ranks, 1, 8, 1024};
  world.count_from(wrap - 3);
  const Sums sum{Sum{}, ranks};
  for (const Index count : {10, 300, 3000}) {
    Ones ones{ranks, count};
    REQUIRE(world.run<AllReduce, Tree, LL, detail::SoloLane>(
        sum, 1, 2, 0, [&](int rank, auto& work) { ones.give(rank, work); }));
    ones.check();
  }
}
