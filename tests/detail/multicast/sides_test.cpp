// Launches whose buffers may lie in windows, by groups of several lanes: each combination of sides,
// with messages longer than the scratch, and with a rank whose places differ.
#include <ccl/detail/multicast/sides.hpp>

#include <algorithm>
#include <array>
#include <vector>

#include "support/catch.hpp"
#include "support/multicast_world.hpp"
#include "support/thread_lanes.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {
using Number = std::uint64_t;
using Summed = detail::Reduction<Sum, Number>;
constexpr int max_window_ranks = 5;

/// Windows of some ranks: numbers that begin a packet behind the begin.
struct Windows {
  Windows(int ranks, Index count)
      : of(std::size_t(ranks), std::vector<Packet>(std::size_t(count / 2 + 2))) {
    for (auto& window : of) table.push_back(window.data());
  }
  Number* numbers(int rank) { return of[std::size_t(rank)][1].word; }
  /// True if all numbers are `want`, and nothing else was written.
  bool hold(int rank, Index count, Number want) {
    const Number* const at = numbers(rank);
    return std::all_of(at, at + count, [&](Number x) { return x == want; }) && at[-1] == 0 &&
           at[-2] == 0 && at[count] == 0;
  }
  detail::BoundBuffer bound(int rank, Word place) {
    detail::BoundBuffer buffer;
    buffer.place = place;
    buffer.windows.set_table(table.data());
    buffer.windows.rank = rank;
    buffer.windows.ranks = int(of.size());
    buffer.packet = 1;
    return buffer;
  }
  std::vector<std::vector<Packet>> of;
  std::vector<Packet*> table;
};

/// An all-reduce. `sends`, `receives`: the buffers lie in windows, except those of `odd`.
template <class Group>
void sums(int ranks, Index count, bool sends, bool receives, int odd) {
  INFO(ranks << " ranks, " << count << " numbers, " << sends << receives << ", odd " << odd);
  MulticastWorld world{ranks, 512};
  Windows send{ranks, count}, recv{ranks, count};
  const Word none = detail::WindowPlaceWord::in_no_window;
  std::array<Word, max_window_ranks> taken{};
  for (int launch = 1; launch <= 3; ++launch) {
    Number want = 0;
    for (int r = 0; r < ranks; ++r) {
      std::fill_n(send.numbers(r), count, Number(launch) << (8 * r));
      want += Number(launch) << (8 * r);
    }
    const auto setup = [&](int r, auto& work) {
      work.input = send.numbers(r), work.output = recv.numbers(r);
      work.layout = {count, 0, 0, true};
      work.send = send.bound(r, sends && r != odd ? 100 : none);
      work.recv = recv.bound(r, receives && r != odd ? 200 : none);
      work.taken = &taken[std::size_t(r)];
    };
    const Summed how{Sum{}, ranks};
    REQUIRE(world.run<AllReduce, Group, Nvls, detail::WindowBuffers>(how, 1 + launch, setup));
    using Taken = detail::TakenWay;
    const Word way = Taken::asked | (sends && odd < 0 ? Taken::loaded_windows : 0) |
                     (receives && odd < 0 ? Taken::stored_windows : 0);
    for (int r = 0; r < ranks; ++r) {
      REQUIRE(recv.hold(r, count, want));
      REQUIRE(send.hold(r, count, Number(launch) << (8 * r)));
      REQUIRE(taken[std::size_t(r)] == way);
    }
  }
}
template <class Group>
void all_sums(int ranks) {
  for (const Index count : {2, 64, 1500}) {
    for (const bool sends : {false, true}) {
      for (const bool receives : {false, true}) {
        sums<Group>(ranks, count, sends, receives, -1);
        sums<Group>(ranks, count, sends, receives, ranks - 1);
      }
    }
  }
}
}  // namespace

TEST_CASE("sums by groups of any width whose buffers may lie in windows") {
  all_sums<detail::SoloLane>(2);
  all_sums<detail::SoloLane>(max_window_ranks);
  all_sums<detail::ThreadLanes<8>>(3);
}

TEST_CASE("a message in windows is one part, however short the scratch") {
  const detail::WindowBuffers::PartState sides;
  CHECK_FALSE(sides.loads);
  CHECK_FALSE(sides.stores);
  CHECK(sides.count == 0);
  static_assert(!detail::CopiedBuffers::in_windows && detail::WindowBuffers::in_windows);
  // 300,000 numbers by a scratch of 512 packets, in few launches' worth of flags.
  MulticastWorld world{2, 512};
  constexpr Index count = 300'000;
  Windows window{2, count};
  for (int r = 0; r < 2; ++r) std::fill_n(window.numbers(r), count, Number(r + 1));
  const Summed how{Sum{}, 2};
  const auto setup = [&](int r, auto& launch) {
    launch.input = window.numbers(r), launch.output = window.numbers(r);
    launch.layout = {count, 0, 0, true};
    launch.send = launch.recv = window.bound(r, 100);
  };
  REQUIRE(world.run<AllReduce, detail::SoloLane, Nvls, detail::WindowBuffers>(how, 2, setup));
  for (int r = 0; r < 2; ++r) CHECK(window.hold(r, count, 3));
}
