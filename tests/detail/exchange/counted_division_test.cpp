#include <ccl/detail/exchange/counted_division.hpp>

#include <vector>

#include "support/catch.hpp"

using namespace ccl;
using namespace ccl::detail;

namespace {
struct Lane {
  static constexpr int tile_cells = 15, tile_packets = 8;
};
using Division = CountedDivision<Lane>;

CountedWork work_of(int row_bytes, int side_bytes) {
  CountedWork work;
  work.peers.ranks = 4;
  work.peers.half_packets = 4 * 100 * Lane::tile_packets;  // boxes of 100 tiles
  work.row_bytes = row_bytes;
  work.side_bytes = side_bytes;
  Division::assign_tiles(work);
  return work;
}
/// Returns the number of runs that have each tile of a message.
template <int N>
std::vector<int> times_in_runs(const CountedWork& work, int rows) {
  const auto message = Division::cut<N>(work, rows);
  std::vector<int> times(std::size_t(Division::tiles(work, rows)));
  for (int r = 0; r < message.runs; ++r) {
    const auto run = Division::run_of<N>(message, r);
    CHECK(run.end - run.tile <= N);
    for (int t = run.tile; t < run.end; ++t) ++times.at(std::size_t(run.piece * message.tiles + t));
  }
  return times;
}
}  // namespace

TEST_CASE("runs have each tile of a message once") {
  constexpr int apart = int(CountedWork::apart_bytes);
  for (const CountedWork& work : {work_of(7, 0), work_of(apart, 0), work_of(apart + 1, 5)}) {
    for (const int rows : {0, 1, 3, 14}) {
      INFO(work.row_bytes << " bytes, " << rows << " rows");
      const std::vector<int> once(std::size_t(Division::tiles(work, rows)), 1);
      CHECK(times_in_runs<1>(work, rows) == once);
      CHECK(times_in_runs<Division::run>(work, rows) == once);
    }
  }
}

TEST_CASE("a box holds the most rows of a launch, and no more") {
  constexpr int apart = int(CountedWork::apart_bytes);
  for (const CountedWork& work : {work_of(7, 0), work_of(apart, 0), work_of(apart + 1, 5)}) {
    const int most = Division::max_rows(work);
    INFO(work.row_bytes << " bytes, " << most << " rows");
    CHECK(work.box_packets == 100 * Lane::tile_packets);
    CHECK(Division::tiles(work, most) <= 100);
    CHECK(Division::tiles(work, most + 1) > 100);
  }
}
