#include "catch.hpp"
#include "peer_world.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {
template <class T, class Proto, class Group, int R>
void run() {
  const Reduction<Sum, T> sum{Sum{}, R};
  using Prims = PeerPrims<Group, Proto, Reduction<Sum, T>, 1, R>;
  PeerWorld<R> world{Prims::half_packets(Prims::split_share(4200), 2)};
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
    // In place.
    REQUIRE(
        world.template run<AllReduce, TwoShot, Proto, Group>(sum, channels, [&](int r, auto& w) {
          w.input = w.output = in[r].data(), w.layout = {count, 0, 0, true};
        }));
    for (int r = 0; r < R; ++r) REQUIRE(in[r] == want);
  }
}
}  // namespace

TEST_CASE("two-shot all-reduce over peers' memory") {
  run<float, LL, SoloLane, 4>();
  run<float, LL128, SoloLane, 3>();
  run<int, LL128, ThreadLanes<8>, 2>();
  run<double, LL, SoloLane, 8>();
}
