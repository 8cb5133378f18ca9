#include <ccl/proto/sentinel.hpp>

#include "support/catch.hpp"
#include "support/peer_world.hpp"
#include "support/thread_lanes.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {
/// `K`: number of ranks for which the kernel is compiled.
template <class T, class Proto, class Group, int R, int K = R>
void run() {
  const detail::Reduction<Sum, T> sum{Sum{}, R};
  using Prims = detail::PeerPrims<Group, Proto, detail::Reduction<Sum, T>, 1, K>;
  PeerWorld<R, K> world{Prims::half_packets(Prims::split_share(4200, R), 2)};
  int turn = 0;
  for (const Index count : {1, 7, 64, 121, 1100, 4099}) {
    const int channels = 1 + turn++ % 3;
    INFO("count " << count << " channels " << channels << " ranks " << R);
    std::vector<std::vector<T>> in(R, std::vector<T>(count)),
        out(R, std::vector<T>(count + 1, T(9)));
    std::vector<T> want(count);
    for (int r = 0; r < R; ++r) {
      for (Index i = 0; i < count; ++i) {
        in[r][i] = T((i * 7 + r * 13 + turn) % 5);
        want[i] = T(want[i] + in[r][i]);
      }
    }
    REQUIRE(
        world.template run<AllReduce, TwoShot, Proto, Group>(sum, channels, [&](int r, auto& w) {
          w.input = in[r].data(), w.output = out[r].data(), w.layout = {count, 0, 0, true};
        }));
    for (int r = 0; r < R; ++r) {
      REQUIRE(std::equal(want.begin(), want.end(), out[r].begin()));
      REQUIRE(out[r][count] == T(9));
    }
    // Call in place.
    REQUIRE(
        world.template run<AllReduce, TwoShot, Proto, Group>(sum, channels, [&](int r, auto& w) {
          w.input = w.output = in[r].data(), w.layout = {count, 0, 0, true};
        }));
    for (int r = 0; r < R; ++r) REQUIRE(in[r] == want);
    // Rooted: the root of one launch may be behind that of the next.
    for (int root = 0; root < R; root += R - 1) {
      for (auto& o : out) o.assign(count + 1, T(9));
      for (int r = 0; r < R; ++r) in[r] = std::vector<T>(count, T(r + 1));
      REQUIRE(world.template run<Reduce, TwoShot, Proto, Group>(sum, channels, [&](int r, auto& w) {
        w.input = in[r].data(), w.output = out[r].data(), w.layout = {count, 0, 0, true};
        w.root = root;
      }));
      for (int r = 0; r < R; ++r) {
        REQUIRE(out[r][0] == T(r == root ? R * (R + 1) / 2 : 9));
        REQUIRE(out[r][count - 1] == T(r == root ? R * (R + 1) / 2 : 9));
        REQUIRE(out[r][count] == T(9));
      }
    }
  }
  using Moves = detail::PeerPrims<Group, Proto, detail::Bytes, 1, K>;
  PeerWorld<R, K> bytes{Moves::half_packets(Moves::split_share(4200, R), 2)};
  for (const Index count : {1, 500, 4099}) {
    for (int root = 0; root < R; ++root) {
      std::vector<std::vector<char>> in(R), out(R, std::vector<char>(count + 1, 9));
      for (int r = 0; r < R; ++r) {
        for (Index i = 0; i < count; ++i) in[r].push_back(char(i * 5 + r));
      }
      REQUIRE(bytes.template run<Broadcast, TwoShot, Proto, Group>(
          detail::Bytes{}, 1 + root % 3, [&](int r, auto& w) {
            w.input = in[r].data(), w.output = out[r].data(), w.layout = {count, 0, 0, true};
            w.root = root;
          }));
      for (int r = 0; r < R; ++r) {
        REQUIRE(std::equal(in[root].begin(), in[root].end(), out[r].begin()));
        REQUIRE(out[r][count] == 9);
      }
    }
  }
}
/// Rank 0 gives up while the last rank is late; then the others go on.
template <class Op, class Proto, class R>
void give_up(const R& how, int root) {
  constexpr int ranks = 3, kernel = 4, count = 300;
  using T = typename R::Type;
  using Prims = detail::PeerPrims<detail::SoloLane, Proto, R, 1, kernel>;
  PeerWorld<ranks, kernel> world{Prims::half_packets(Prims::split_share(count, ranks), 2)};
  std::vector<std::vector<T>> in(ranks, std::vector<T>(count)), out(ranks, std::vector<T>(count));
  std::vector<T> want(count);
  for (int r = 0; r < ranks; ++r) {
    for (int i = 0; i < count; ++i) {
      in[r][i] = T(1 + r + i % 7);
      want[i] = T(Op::reduces ? want[i] + in[r][i] : r == root ? in[r][i] : want[i]);
    }
  }
  const auto run = [&](int r, const detail::AbortWatch& watch) {
    world.template run_rank<Op, TwoShot, Proto, detail::SoloLane>(r, how, 1, watch, [&](auto& w) {
      w.input = in[r].data(), w.output = out[r].data(), w.layout = {count, 0, 0, true};
      w.root = root;
    });
  };
  detail::LaneFailure lane_failure[ranks];
  const Word stop = 1, go_on = 0;
  run(0, detail::AbortWatch{&stop, &lane_failure[0], 0});
  std::vector<std::thread> threads;
  for (int r = 1; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      run(r, detail::AbortWatch{&go_on, &lane_failure[r], Word{50} * 1'000'000});
    });
  }
  for (auto& t : threads) t.join();
  for (int r = 1; r < ranks; ++r) {
    INFO("rank " << r << " of " << Op::name << " by " << Proto::name);
    const bool has_result = !Op::rooted || !Op::reduces || r == root;
    CHECK((lane_failure[r].peer != 0 || !has_result || out[r] == want));
  }
}
}  // namespace

TEST_CASE("what a rank that gave up has left does not pass for the data of its peers") {
  const detail::Reduction<Sum, float> sum{Sum{}, 3};
  give_up<AllReduce, LL>(sum, 0);
  give_up<AllReduce, LL128>(sum, 0);
  give_up<AllReduce, Sentinel>(sum, 0);
  give_up<Reduce, LL128>(sum, 1);
  give_up<Reduce, Sentinel>(sum, 1);
  give_up<Broadcast, LL>(detail::Bytes{}, 2);
}

TEST_CASE("two-shot all-reduce, reduce and broadcast over peers' memory") {
  run<float, LL, detail::SoloLane, 4>();
  run<float, LL128, detail::SoloLane, 3>();
  run<int, LL128, detail::ThreadLanes<8>, 2>();
  run<double, LL, detail::SoloLane, 8>();
}

TEST_CASE("two-shot: a kernel runs fewer ranks than those for which it is compiled") {
  run<float, LL128, detail::SoloLane, 3, 4>();
  run<int, LL128, detail::ThreadLanes<8>, 5, 8>();
  run<float, LL128Pairs, detail::ThreadLanes<8>, 3, 4>();
  run<double, LL, detail::SoloLane, 6, 8>();
  run<float, LL128, detail::SoloLane, 7, 8>();
}

namespace {
/// All-reduces floats that round. Every rank must have the sum in rank order.
template <class Algo, int R, int K>
void sums_in_rank_order() {
  constexpr int count = 1000;
  using How = detail::Reduction<Sum, float>;
  using Prims = detail::PeerPrims<detail::SoloLane, LL128, How, 1, K>;
  PeerWorld<R, K> world{Prims::half_packets(count, Algo::boxes)};
  std::vector<std::vector<float>> in(R, std::vector<float>(count)), out = in;
  std::vector<float> want(count);
  for (int r = 0; r < R; ++r) {
    for (int i = 0; i < count; ++i) {
      in[r][i] = float((i * 31 + r * 17) % 101 - 50) * 0.1f * float(1 << (i + 3 * r) % 20);
      want[i] = r == 0 ? in[r][i] : want[i] + in[r][i];
    }
  }
  REQUIRE(world.template run<AllReduce, Algo, LL128, detail::SoloLane>(
      How{Sum{}, R}, 2, [&](int r, auto& w) {
        w.input = in[r].data(), w.output = out[r].data();
        w.layout = {count, 0, 0, Algo::splits};
      }));
  for (int r = 0; r < R; ++r) REQUIRE(out[r] == want);
}
}  // namespace

TEST_CASE("sums are in rank order, for every number of ranks") {
  sums_in_rank_order<OneShot, 3, 4>();
  sums_in_rank_order<OneShot, 5, 8>();
  sums_in_rank_order<OneShot, 6, 8>();
  sums_in_rank_order<OneShot, 7, 8>();
  sums_in_rank_order<TwoShot, 3, 4>();
  sums_in_rank_order<TwoShot, 5, 8>();
  sums_in_rank_order<TwoShot, 6, 8>();
  sums_in_rank_order<TwoShot, 7, 8>();
}
