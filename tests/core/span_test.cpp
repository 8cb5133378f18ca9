#include <ccl/host_lanes.hpp>
#include <ccl/proto/ll128.hpp>
#include <ccl/span.hpp>

#include <cstring>
#include <vector>

#include "catch.hpp"

using namespace ccl;

namespace {

/// One of 32 lanes that are looked at one after another: enough for what a lane does alone.
struct OneOf32 {
  static constexpr int width = 32;
  using Memory = HostMemory;
  int lane;
  int rank() const { return lane; }
  void sync() const {}
  bool all(bool vote) const { return vote; }
};
using Lane = LL128::Lane<OneOf32>;
using Fragments2 = Lane::Fragment[2];

/// Elements of a pair of tiles, each with a value of its own, from `offset` bytes into a buffer on.
template <class T>
struct Pair {
  static constexpr int count = 2 * Lane::tile_cells * Element<T>::per_cell;
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
  const Span<T, Align> data{from.at(), to.at()};
  int words = 0;
  for (int l = 0; l < 32; ++l) {
    const Lane lane{OneOf32{l}};
    Fragments2 f{};
    data.load_pair(lane, 0, f);
    for (int tile = 0; tile < 2; ++tile) {
      for (int w = 0; w < Lane::cells; ++w) {
        if (!lane.has(w)) f[tile].word[w] = ~Word{0};  // where the flag travels
        words += lane.has(w) ? 1 : 0;
      }
    }
    data.store_pair(lane, 0, f);
  }
  CHECK(words == 2 * Lane::tile_cells);
  int wrong = 0;
  for (int i = 0; i < Pair<T>::count; ++i) wrong += to.get(i) != from.get(i) ? 1 : 0;
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("a pair of LL128's tiles holds every element of the user's memory once") {
  STATIC_REQUIRE(Lane::pairs);
  round_trip<float, 16>(0);
  round_trip<float, 4>(4);
  round_trip<unsigned char, 1>(3);
  round_trip<double, 8>(8);
  round_trip<short, 2>(2);
}

TEST_CASE("accesses of a pair lie side by side, two cells of each lane") {
  std::vector<int> taken(2 * Lane::tile_cells);
  for (int l = 0; l < 32; ++l) {
    const Lane lane{OneOf32{l}};
    const int first = lane.pair_cell();
    CHECK(first % 2 == 0);
    CHECK(first < Lane::pair_step);
    for (int c = 0; c < 2; ++c) ++taken[std::size_t(first + c)];
    for (int c = 0; lane.has(1) && c < 2; ++c) ++taken[std::size_t(first + Lane::pair_step + c)];
  }
  for (const int times : taken) CHECK(times == 1);
}
