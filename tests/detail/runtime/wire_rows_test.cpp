#include <ccl/detail/runtime/wire_rows.hpp>

#include <utility>
#include <vector>

#include "support/catch.hpp"

using namespace ccl;
using ccl::detail::WireRows;

namespace {
/// A wire that is known by its number of slots.
Wire wire(int number) {
  static Packet slots[1];
  Wire one;
  one.slots = slots;
  one.slot_count = number;
  return one;
}
}  // namespace

TEST_CASE("rows of few ranks, and of exchanges, have a column for each rank") {
  for (const auto& [ranks, whole] :
       {std::pair{WireRows::max_whole, false}, std::pair{1024, true}}) {
    WireRows rows{ranks, 2, whole};
    CHECK(rows.columns() == ranks);
    CHECK(rows.column_of().empty());
    CHECK_FALSE(rows.put(true, 1, ranks - 1, wire(7)));
    CHECK(rows.out()[std::size_t(2 * ranks - 1)].slot_count == 7);
    CHECK(rows.in()[std::size_t(2 * ranks - 1)].slots == nullptr);
    CHECK(rows.peer_of(std::size_t(2 * ranks - 1)) == ranks - 1);
    CHECK(rows.channel_of(std::size_t(2 * ranks - 1)) == 1);
  }
}

TEST_CASE("rows of many ranks have columns for the connected peers, and grow with these") {
  constexpr int ranks = 1024, channels = 3;
  WireRows rows{ranks, channels, false};
  CHECK(rows.columns() < 8);
  CHECK(rows.at(true, 0, 5).slots == nullptr);
  const auto number = [](bool sends, int channel, int peer) {
    return 1 + int(sends) + 2 * channel + 2 * channels * peer;
  };
  const std::vector<int> peers{1023, 0, 5, 512, 6, 7, 8, 9};
  int moves = 0;
  for (const int peer : peers) {
    for (int c = 0; c < channels; ++c) {
      for (const bool sends : {false, true}) {
        moves += int(rows.put(sends, c, peer, wire(number(sends, c, peer))));
      }
    }
  }
  CHECK(moves > 0);
  CHECK(moves < 4);
  for (const int peer : peers) {
    CHECK(rows.column_of()[std::size_t(peer)] > 0);
    for (int c = 0; c < channels; ++c) {
      CHECK(rows.at(false, c, peer).slot_count == number(false, c, peer));
      CHECK(rows.at(true, c, peer).slot_count == number(true, c, peer));
    }
  }
  CHECK(rows.at(true, 2, 77).slots == nullptr);
  int wires = 0;
  for (std::size_t i = 0; i < rows.in().size(); ++i) {
    if (rows.in()[i].slots == nullptr) continue;
    ++wires;
    CHECK(rows.in()[i].slot_count == number(false, rows.channel_of(i), rows.peer_of(i)));
  }
  CHECK(wires == int(peers.size()) * channels);
}

TEST_CASE("rows of many ranks hold all of them at most") {
  constexpr int ranks = WireRows::max_whole + 1;
  WireRows rows{ranks, 1, false};
  for (int p = 0; p < ranks; ++p) rows.put(false, 0, p, wire(p + 1));
  CHECK(rows.columns() == ranks + 1);
  for (int p = 0; p < ranks; ++p) CHECK(rows.at(false, 0, p).slot_count == p + 1);
}
