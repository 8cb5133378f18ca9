#include <ccl/proto/sentinel.hpp>

#include <cuda/std/bit>

#include <cmath>
#include <cstring>

#include "support/catch.hpp"
#include "support/peer_world.hpp"
#include "support/thread_lanes.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {

Word word_of(float low, float high) {
  return cuda::std::bit_cast<std::uint32_t>(low) | Word{cuda::std::bit_cast<std::uint32_t>(high)}
                                                       << 32;
}

/// Elements of which most are zeros, of either sign.
template <class T>
T value(int rank, Index i, int turn) {
  const Index seed = i * 7 + rank * 13 + turn * 5;
  if (seed % 3 != 0) return T(seed % 2 == 0 ? -0.0f : 0.0f);
  return T(float(seed % 9 - 4));
}
template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

/// Launches of all sizes one after another, so that each finds what others have left behind.
/// `K`: number of ranks for which the kernel is compiled.
template <class T, class Algo, class Group, int R, int K = R>
void all_reduces() {
  using How = detail::Reduction<Sum, T>;
  const How sum{Sum{}, R};
  using Prims = detail::PeerPrims<Group, Sentinel, How, 1, K>;
  PeerWorld<R, K> world{
      Prims::half_packets(Algo::splits ? Prims::split_share(4200, R) : 4200, Algo::boxes)};
  int turn = 0;
  for (const Index count : {1, 7, 4099, 64, 1100, 3, 129}) {
    const int channels = 1 + turn++ % 3;
    INFO(Algo::name << ", count " << count << " channels " << channels << " ranks " << R);
    std::vector<std::vector<T>> in(R, std::vector<T>(std::size_t(count))),
        out(R, std::vector<T>(std::size_t(count) + 1, T(9.0f)));
    for (int r = 0; r < R; ++r) {
      for (Index i = 0; i < count; ++i) in[r][i] = value<T>(r, i, turn);
    }
    REQUIRE(
        world.template run<AllReduce, Algo, Sentinel, Group>(sum, channels, [&](int r, auto& w) {
          w.input = in[r].data(), w.output = out[r].data(), w.layout = {count, 0, 0, Algo::splits};
        }));
    Index wrong = 0;
    for (Index i = 0; i < count; ++i) {
      float want = 0;
      for (int r = 0; r < R; ++r) want += float(in[r][i]);
      for (int r = 0; r < R; ++r) wrong += float(out[r][i]) != want;
    }
    REQUIRE(wrong == 0);
    for (int r = 0; r < R; ++r) {
      REQUIRE(float(out[r][count]) == 9.0f);
      REQUIRE(same_bits(out[r], out[0]));  // of zeros, too
    }
  }
}

}  // namespace

TEST_CASE("words of zeros cross, and differ from words that have not come") {
  using Lane = Sentinel::Lane<detail::SoloLane>;
  const Lane lane{detail::SoloLane{}};
  Packet tile[Lane::tile_packets] = {};
  CHECK(!lane.has_arrived(lane.load(tile), 1));
  const Word zeros = 0, some = word_of(0.0f, 2.5f), minus = word_of(-0.0f, 1.0f);
  for (const Word first : {zeros, some, minus}) {
    lane.store(tile, {{first, zeros}}, 1);
    const auto arrived = lane.load(tile);
    CHECK(lane.has_arrived(arrived, 1));
    CHECK(lane.unpack(arrived).word[0] == first);
    CHECK(lane.unpack(arrived).word[1] == zeros);
    lane.empty(tile);
    CHECK(!lane.has_arrived(lane.load(tile), 1));
  }
  // Half of a packet is not all of it.
  tile[0] = {{some, 0}};
  CHECK(!lane.has_arrived(lane.load(tile), 1));
}

TEST_CASE("a zero among zeros may lose its sign, at its sender as at the others") {
  using Lane = Sentinel::Lane<detail::SoloLane>;
  const Lane lane{detail::SoloLane{}};
  Packet tile[Lane::tile_packets] = {};
  const Fragment<2> sent{{word_of(0.0f, -0.0f), word_of(-0.0f, -0.0f)}};
  lane.store(tile, sent, 1);
  const auto got = lane.unpack(lane.load(tile)), kept = Lane::as_sent(sent);
  CHECK(got.word[0] == 0);
  CHECK(got.word[1] == sent.word[1]);
  CHECK(kept.word[0] == got.word[0]);
  CHECK(kept.word[1] == got.word[1]);
}

TEST_CASE("sums of floats without flags: the same bits at all ranks, launch after launch") {
  all_reduces<float, OneShot, detail::SoloLane, 4>();
  all_reduces<float, TwoShot, detail::SoloLane, 8>();
  all_reduces<double, TwoShot, detail::SoloLane, 3>();
  all_reduces<bfloat16, TwoShot, detail::SoloLane, 4>();
  all_reduces<float16, OneShot, detail::ThreadLanes<8>, 2>();
  all_reduces<float, TwoShot, detail::ThreadLanes<8>, 2>();
  all_reduces<float, TwoShot, detail::SoloLane, 5, 8>();
  all_reduces<bfloat16, OneShot, detail::SoloLane, 3, 4>();
}

TEST_CASE("reduce, where not everybody waits for everybody, and reduce-scatter") {
  constexpr int ranks = 3;
  using How = detail::Reduction<Avg, float>;
  const How average{Avg{}, ranks};
  PeerWorld<ranks> world{detail::PeerPrims<detail::SoloLane, Sentinel, How, 1, ranks>::half_packets(
      1000, TwoShot::boxes)};
  std::vector<std::vector<float>> in(ranks, std::vector<float>(3000)), out = in;
  const auto mean = [&](Index i) { return (in[0][i] + in[1][i] + in[2][i]) / 3; };
  for (int turn = 0; turn < 12; ++turn) {
    const Index count = turn % 2 == 0 ? 1000 : 100;
    const int root = turn % ranks;
    for (int r = 0; r < ranks; ++r) {
      for (Index i = 0; i < 3000; ++i) in[r][i] = value<float>(r, i, turn);
      out[r].assign(3000, 9);
    }
    const auto of_root = [&](int r, auto& w) {
      w.input = in[r].data(), w.output = out[r].data(), w.root = root;
      w.layout = {count, 0, 0, turn % 4 > 1};
    };
    REQUIRE((turn % 4 > 1
                 ? world.run<Reduce, TwoShot, Sentinel, detail::SoloLane>(average, 2, of_root)
                 : world.run<Reduce, OneShot, Sentinel, detail::SoloLane>(average, 2, of_root)));
    for (Index i = 0; i < count; ++i) REQUIRE(out[root][i] == mean(i));
    REQUIRE(out[(root + 1) % ranks][0] == 9);
    REQUIRE(world.run<ReduceScatter, OneShot, Sentinel, detail::SoloLane>(
        average, 2, [&](int r, auto& w) {
          w.input = in[r].data(), w.output = out[r].data(), w.layout = {count, count, 0, false};
        }));
    for (int r = 0; r < ranks; ++r) {
      for (Index i = 0; i < count; ++i) REQUIRE(out[r][i] == mean(r * count + i));
    }
  }
}

TEST_CASE("it carries sums of floats and nothing else") {
  STATIC_REQUIRE(Sentinel::supports_reduction<Sum, float>);
  STATIC_REQUIRE(Sentinel::supports_reduction<Avg, float8_e4m3>);
  STATIC_REQUIRE(Sentinel::supports_reduction<PreMulSum, double>);
  STATIC_REQUIRE(!Sentinel::supports_reduction<Max, float>);
  STATIC_REQUIRE(!Sentinel::supports_reduction<Sum, int>);
  struct Own {
    float operator()(float a, float b) const { return a + b; }
  };
  STATIC_REQUIRE(!Sentinel::supports_reduction<Own, float>);
}
