#include <ccl/detail/lanes/collect.hpp>
#include <ccl/detail/lanes/host_lanes.hpp>
#include <ccl/detail/lanes/host_memory.hpp>
#include <ccl/proto/ll.hpp>
#include <ccl/proto/ll128.hpp>

#include <vector>

#include "support/catch.hpp"

namespace {
using namespace ccl;

constexpr int rows = 3, columns = 2;
constexpr Word flag = 7;

/// Tiles of a protocol as a peer would have stored them, `n * columns + m` in each cell.
template <class Proto>
struct Tiles {
  using Lane = typename Proto::template Lane<detail::SoloLane, 1>;
  static constexpr int packets = Lane::tile_packets;
  Lane lane{detail::SoloLane{}};
  std::vector<Packet> memory = std::vector<Packet>(std::size_t(packets * rows * columns + 8));

  Packet* at(int n, int m) {
    const auto begin = reinterpret_cast<std::uintptr_t>(memory.data());
    Packet* const line = memory.data() + (128 - begin % 128) % 128 / sizeof(Packet);
    return line + (n * columns + m) * packets;
  }
  void store(int n, int m) {
    typename Lane::Fragment f{};
    for (Word& word : f.word) word = Word(n * columns + m);
    lane.store(at(n, m), f, flag);
  }
};
int who(int n, int m) {
  return 10 * n + m;
}

TEMPLATE_TEST_CASE("a grid of tiles comes at once, each in its place", "", LL, LL128) {
  Tiles<TestType> tiles;
  for (int n = 0; n < rows; ++n) {
    for (int m = 0; m < columns; ++m) tiles.store(n, m);
  }
  const Word stop = 0;
  detail::LaneFailure lane_failure;
  const detail::AbortWatch watch{&stop, &lane_failure, Word{60} * 1'000'000'000};
  detail::SpinWait<detail::HostMemory> spin_wait{watch};
  const auto got = detail::collect_grid<rows, columns>(
      tiles.lane, [&](int n, int m) { return tiles.at(n, m); }, who, flag, spin_wait);
  for (int n = 0; n < rows; ++n) {
    for (int m = 0; m < columns; ++m) {
      for (const Word word : got.of[n].of[m].word) CHECK(word == Word(n * columns + m));
    }
  }
  CHECK(!spin_wait.failed());
}

TEMPLATE_TEST_CASE("who owes the tile of a grid that does not come is named", "", LL, LL128) {
  for (int missing = 0; missing < rows * columns; ++missing) {
    Tiles<TestType> tiles;
    for (int i = 0; i < rows * columns; ++i) {
      if (i != missing) tiles.store(i / columns, i % columns);
    }
    const Word stop = 0;
    detail::LaneFailure lane_failure;
    const detail::AbortWatch watch{&stop, &lane_failure, Word{5} * 1'000'000};
    detail::SpinWait<detail::HostMemory> spin_wait{watch};
    (void)detail::collect_grid<rows, columns>(
        tiles.lane, [&](int n, int m) { return tiles.at(n, m); }, who, flag, spin_wait);
    CHECK(spin_wait.failed());
    CHECK(int(lane_failure.peer) - 1 == who(missing / columns, missing % columns));
    CHECK(lane_failure.step == flag - 1);
  }
}

TEMPLATE_TEST_CASE(
    "of peers' tiles the one that does not come is named, but not one who sends none", "", LL,
    LL128) {
  for (int missing = 0; missing < rows; ++missing) {
    for (int skip = 0; skip < rows; ++skip) {
      Tiles<TestType> tiles;
      for (int n = 0; n < rows; ++n) {
        if (n != missing && n != skip) tiles.store(n, 0);
      }
      const Word stop = 0;
      detail::LaneFailure lane_failure;
      const detail::AbortWatch watch{&stop, &lane_failure, Word{5} * 1'000'000};
      detail::SpinWait<detail::HostMemory> spin_wait{watch};
      const auto got = detail::collect_peers<rows>(
          tiles.lane, tiles.at(0, 0), tiles.at(1, 0) - tiles.at(0, 0), flag, skip, rows, spin_wait);
      CHECK(spin_wait.failed() == (missing != skip));
      for (int n = 0; n < rows; ++n) {
        if (n == missing || n == skip) continue;
        for (const Word word : got.of[n].word) CHECK(word == Word(n * columns));
      }
      if (missing == skip) continue;
      CHECK(int(lane_failure.peer) - 1 == missing);
    }
  }
}

TEMPLATE_TEST_CASE("tiles of absent ranks need not come", "", LL, LL128) {
  for (int missing = 0; missing < rows; ++missing) {
    Tiles<TestType> tiles;
    for (int n = 0; n < rows - 1; ++n) {
      if (n != missing) tiles.store(n, 0);
    }
    const Word stop = 0;
    detail::LaneFailure lane_failure;
    const detail::AbortWatch watch{&stop, &lane_failure, Word{5} * 1'000'000};
    detail::SpinWait<detail::HostMemory> spin_wait{watch};
    (void)detail::collect_peers<rows>(tiles.lane, tiles.at(0, 0), tiles.at(1, 0) - tiles.at(0, 0),
                                      flag, -1, rows - 1, spin_wait);
    CHECK(spin_wait.failed() == (missing < rows - 1));
    CHECK(int(lane_failure.peer) - 1 == (missing < rows - 1 ? missing : -1));
  }
}
}  // namespace
