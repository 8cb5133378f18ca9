#include <ccl/detail/lanes/host_lanes.hpp>
#include <ccl/detail/lanes/pair_lane.hpp>
#include <ccl/detail/numeric/user_buffer.hpp>
#include <ccl/proto/ll.hpp>
#include <ccl/proto/ll128_pairs.hpp>

#include <cstring>
#include <vector>

#include "support/catch.hpp"

using namespace ccl;

namespace {

/// One of 32 lanes that are looked at one after another: enough for what a lane does alone.
struct OneOf32 {
  static constexpr int width = 32;
  using Memory = detail::HostMemory;
  int lane;
  int rank() const { return lane; }
  void sync() const {}
  bool all(bool vote) const { return vote; }
};
using Lane = LL128Pairs::Lane<OneOf32>;
using Half = LL128::Lane<OneOf32>;

/// Elements of a pair of tiles, each with a value of its own, from `offset` bytes into a buffer on.
template <class T>
struct Pair {
  static constexpr int count = Lane::tile_cells * Element<T>::per_cell;
  explicit Pair(int offset) : offset_{offset}, bytes_(count * sizeof(T) + 64) {}
  void fill() {
    for (int i = 0; i < count; ++i) set(i, T(i % 250 + 1));
  }
  char* at() { return bytes_.data() + offset_; }
  T get(int i) {
    T x;
    std::memcpy(&x, at() + i * int(sizeof(T)), sizeof(T));
    return x;
  }
  void set(int i, T x) { std::memcpy(at() + i * int(sizeof(T)), &x, sizeof(T)); }

 private:
  int offset_;
  std::vector<char> bytes_;
};

template <class T, int Align>
void round_trip(int offset) {
  Pair<T> from{offset}, to{offset};
  from.fill();
  const detail::UserBuffer<T, Align> data{from.at(), to.at()};
  std::vector<Packet> wire(Lane::tile_packets);
  const Word flag = 77;
  for (int l = 0; l < 32; ++l) {
    const Lane lane{OneOf32{l}};
    lane.store(wire.data(), data.template load<detail::Fill::full>(lane, 0, Pair<T>::count), flag);
  }
  for (int l = 0; l < 32; ++l) {
    const Lane lane{OneOf32{l}};
    const auto arrived = lane.load(wire.data());
    CHECK(lane.has_arrived(arrived, flag));
    CHECK(!lane.has_arrived(arrived, flag + 1));
    data.template store<detail::Fill::full>(lane, 0, Pair<T>::count, lane.unpack(arrived));
  }
  int wrong = 0;
  for (int i = 0; i < Pair<T>::count; ++i) wrong += to.get(i) != from.get(i) ? 1 : 0;
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("a pair of LL128's tiles carries every element of the user's memory once") {
  round_trip<float, 16>(0);
  round_trip<float, 4>(4);
  round_trip<unsigned char, 1>(3);
  round_trip<double, 8>(8);
  round_trip<short, 2>(2);
}

TEST_CASE("each access of a pair is two cells side by side, and those of all lanes are") {
  std::vector<int> taken(std::size_t(Lane::tile_cells));
  int first_accesses = 0;
  for (int l = 0; l < 32; ++l) {
    const Lane lane{OneOf32{l}};
    for (int c = 0; c < Lane::cells; c += 2) {
      CHECK(lane.contains(c) == lane.contains(c + 1));
      if (!lane.contains(c)) continue;
      CHECK(lane.cell(c) % 2 == 0);
      CHECK(lane.cell(c + 1) == lane.cell(c) + 1);
      CHECK((c == 0) == (lane.cell(c) < 64));
      first_accesses += c == 0 ? 1 : 0;
      ++taken[std::size_t(lane.cell(c))];
      ++taken[std::size_t(lane.cell(c + 1))];
    }
  }
  CHECK(first_accesses == 32);
  for (const int times : taken) CHECK(times == 1);
}

TEST_CASE("pairs are two tiles of LL128 on the wire, for elements that fill their cells") {
  STATIC_REQUIRE(Lane::tile_cells == 2 * Half::tile_cells);
  STATIC_REQUIRE(Lane::tile_packets == 2 * Half::tile_packets);
  struct Three {
    char x[3];
  };
  struct Large {
    double x[2];
  };
  STATIC_REQUIRE(detail::moves_pairs<LL128, OneOf32, float>());
  STATIC_REQUIRE(!detail::moves_pairs<LL128, OneOf32, Three>());
  STATIC_REQUIRE(!detail::moves_pairs<LL128, OneOf32, Large>());
  STATIC_REQUIRE(!detail::moves_pairs<LL, OneOf32, float>());
  STATIC_REQUIRE(!detail::moves_pairs<LL128, detail::SoloLane, float>());
}
