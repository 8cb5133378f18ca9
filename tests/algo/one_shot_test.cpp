#include <tuple>

#include "support/catch.hpp"
#include "support/peer_world.hpp"
#include "support/thread_lanes.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {
template <class P, class G, class E, int R, int K = R>
struct Case {
  using Proto = P;
  using Group = G;
  using T = E;
  static constexpr int ranks = R, kernel = K;
};
using Cases = std::tuple<
    Case<LL, detail::SoloLane, float, 4>, Case<LL128, detail::SoloLane, float, 3>,
    Case<LL128, detail::ThreadLanes<8>, int16_t, 2>, Case<LL, detail::SoloLane, int8_t, 8>,  //
    Case<LL128, detail::SoloLane, float, 3, 4>, Case<LL, detail::SoloLane, int8_t, 5, 8>,
    Case<LL128, detail::ThreadLanes<8>, int16_t, 6, 8>, Case<LL128, detail::SoloLane, float, 7, 8>>;
}  // namespace

TEMPLATE_LIST_TEST_CASE("one-shot: every collective, launches of any shape after each other", "",
                        Cases) {
  using T = typename TestType::T;
  using Proto = typename TestType::Proto;
  using Group = typename TestType::Group;
  constexpr int R = TestType::ranks, K = TestType::kernel;
  const detail::Reduction<Sum, T> sum{Sum{}, R};
  using Prims = detail::PeerPrims<Group, Proto, detail::Reduction<Sum, T>, 1, K>;
  PeerWorld<R, K> world{Prims::half_packets(1200, 1)};
  PeerWorld<R, K> bytes{
      detail::PeerPrims<Group, Proto, detail::Bytes, 1, K>::half_packets(1200 * sizeof(T), 1)};
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
        detail::Bytes{}, channels, [&](int r, auto& w) {
          w.input = in[r].data(), w.output = out[r].data(), w.layout = {n, 0, n, false};
        }));
    for (int r = 0; r < R; ++r) {
      for (int s = 0; s < R; ++s) {
        REQUIRE(std::equal(out[r].begin() + s * count, out[r].begin() + (s + 1) * count,
                           in[s].begin()));
      }
    }
    poison();
    REQUIRE(bytes.template run<AllToAll, OneShot, Proto, Group>(
        detail::Bytes{}, channels, [&](int r, auto& w) {
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

TEMPLATE_LIST_TEST_CASE(
    "one-shot: calls that share a launch have mailboxes and blocks of their own", "", Cases) {
  using T = typename TestType::T;
  using Proto = typename TestType::Proto;
  using Group = typename TestType::Group;
  constexpr int R = TestType::ranks, K = TestType::kernel;
  const detail::Reduction<Sum, T> sum{Sum{}, R};
  PeerWorld<R, K> world{
      detail::PeerPrims<Group, Proto, detail::Reduction<Sum, T>, 1, K>::half_packets(2500, 1)};
  std::vector<std::vector<T>> in(R), out(R);
  for (int turn = 0; turn < 12; ++turn) {
    const Index counts[] = {turn % 5 == 0 ? 1 : 300 * (turn % 4) + 17, turn % 3 == 0 ? 1100 : 64};
    const int channels[] = {1 + turn % 2, 1 + turn / 2 % 2};
    for (int r = 0; r < R; ++r) {
      in[r].resize(counts[0] + counts[1]);
      for (Index i = 0; i < counts[0] + counts[1]; ++i) in[r][i] = T((i * 7 + r * 13 + turn) % 5);
      out[r].assign(counts[0] + counts[1], T(-1));
    }
    const auto place = [&](int r, Index from, Index count, auto& w) {
      w.input = in[r].data() + from, w.output = out[r].data() + from;
      w.layout = {count, 0, 0, false};
    };
    REQUIRE(world.template run_two<AllReduce, OneShot, Proto, Group>(
        sum, channels,
        [&](int r, int call, auto& w) { place(r, call == 0 ? 0 : counts[0], counts[call], w); }));
    const auto all_right = [&](Index end) {
      for (int r = 0; r < R; ++r) {
        for (Index i = 0; i < end; ++i) {
          int s = 0;
          for (int p = 0; p < R; ++p) s += int(in[p][i]);
          if (out[r][i] != T(s)) return false;
        }
      }
      return true;
    };
    REQUIRE(all_right(counts[0] + counts[1]));
    // A call of its own between them, on as many blocks as there are: all copies count alike.
    for (auto& o : out) o.assign(o.size(), T(-1));
    REQUIRE(world.template run<AllReduce, OneShot, Proto, Group>(
        sum, 1 + turn % 4, [&](int r, auto& w) { place(r, 0, counts[0], w); }));
    REQUIRE(all_right(counts[0]));
  }
}
