#include <tuple>

#include "catch.hpp"
#include "peer_world.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {
template <class P, class G, class E, int R>
struct Case {
  using Proto = P;
  using Group = G;
  using T = E;
  static constexpr int ranks = R;
};
using Cases = std::tuple<Case<LL, SoloLane, float, 4>, Case<LL128, SoloLane, float, 3>,
                         Case<LL128, ThreadLanes<8>, int16_t, 2>, Case<LL, SoloLane, int8_t, 8>>;
}  // namespace

TEMPLATE_LIST_TEST_CASE("one-shot: every collective, launches of any shape after each other", "",
                        Cases) {
  using T = typename TestType::T;
  using Proto = typename TestType::Proto;
  using Group = typename TestType::Group;
  constexpr int R = TestType::ranks;
  const Reduction<Sum, T> sum{Sum{}, R};
  using Prims = PeerPrims<Group, Proto, Reduction<Sum, T>, 1, R>;
  PeerWorld<R> world{Prims::half_packets(1200, 1)};
  PeerWorld<R> bytes{PeerPrims<Group, Proto, Bytes, 1, R>::half_packets(1200 * sizeof(T), 1)};
  int turn = 0;
  for (const Index count : {1, 7, 64, 121, 1100}) {
    const int channels = 1 + turn++ % 3;
    INFO("count " << count << " channels " << channels);
    std::vector<std::vector<T>> in(R, std::vector<T>(count * R)), out = in;
    for (int r = 0; r < R; ++r) {
      for (Index i = 0; i < count * R; ++i) in[r][i] = T((i * 7 + r * 13 + turn) % 5);
    }
    const auto total = [&](Index i) {
      int s = 0;
      for (int r = 0; r < R; ++r) s += int(in[r][i]);
      return T(s);
    };
    const auto poison = [&] {
      for (auto& o : out) o.assign(count * R, T(-1));
    };
    poison();
    REQUIRE(
        world.template run<AllReduce, OneShot, Proto, Group>(sum, channels, [&](int r, auto& w) {
          w.input = in[r].data(), w.output = out[r].data(), w.layout = {count, 0, 0, false};
        }));
    for (int r = 0; r < R; ++r) {
      for (Index i = 0; i < count; ++i) REQUIRE(out[r][i] == total(i));
      if (R > 1) REQUIRE(out[r][count] == T(-1));
    }
    poison();
    REQUIRE(world.template run<ReduceScatter, OneShot, Proto, Group>(
        sum, channels, [&](int r, auto& w) {
          w.input = in[r].data(), w.output = out[r].data(), w.layout = {count, count, 0, false};
        }));
    for (int r = 0; r < R; ++r) {
      for (Index i = 0; i < count; ++i) REQUIRE(out[r][i] == total(r * count + i));
      REQUIRE(out[r][count] == T(-1));
    }
    for (int root = 0; root < R; ++root) {
      poison();
      REQUIRE(world.template run<Reduce, OneShot, Proto, Group>(sum, channels, [&](int r, auto& w) {
        w.input = in[r].data(), w.output = out[r].data(), w.layout = {count, 0, 0, false};
        w.root = root;
      }));
      for (Index i = 0; i < count; ++i) REQUIRE(out[root][i] == total(i));
      REQUIRE(out[(root + 1) % R][0] == T(-1));
    }
    const Index n = count * Index{sizeof(T)};
    poison();
    REQUIRE(bytes.template run<AllGather, OneShot, Proto, Group>(
        Bytes{}, channels, [&](int r, auto& w) {
          w.input = in[r].data(), w.output = out[r].data(), w.layout = {n, 0, n, false};
        }));
    for (int r = 0; r < R; ++r) {
      for (int s = 0; s < R; ++s) {
        REQUIRE(std::equal(out[r].begin() + s * count, out[r].begin() + (s + 1) * count,
                           in[s].begin()));
      }
    }
    poison();
    REQUIRE(
        bytes.template run<AllToAll, OneShot, Proto, Group>(Bytes{}, channels, [&](int r, auto& w) {
          w.input = in[r].data(), w.output = out[r].data(), w.layout = {n, n, n, false};
        }));
    for (int r = 0; r < R; ++r) {
      for (int s = 0; s < R; ++s) {
        REQUIRE(std::equal(out[r].begin() + s * count, out[r].begin() + (s + 1) * count,
                           in[s].begin() + r * count));
      }
    }
  }
}
