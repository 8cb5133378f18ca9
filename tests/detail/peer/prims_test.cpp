// The kernel that stands for those of all numbers of ranks and alignments, beside those kernels.
#include <ccl/algo/one_shot.hpp>
#include <ccl/algo/two_shot.hpp>
#include <ccl/proto/sentinel.hpp>

#include <vector>

#include "support/catch.hpp"
#include "support/peer_world.hpp"
#include "support/thread_lanes.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {
constexpr int offset = 1;  // elements: ranks' buffers have different alignments

template <class Op, class Algo, class Proto, class Group, int R, int K>
void reduces_alike() {
  const detail::Reduction<Avg, float> how{Avg{}, R};
  using Prims = detail::PeerPrims<Group, Proto, detail::Reduction<Avg, float>, 1, K>;
  constexpr bool scatters = std::is_same_v<Op, ReduceScatter>;
  PeerWorld<R, K> world{2 * Prims::half_packets(2100, 2)};
  for (const Index count : {1, 7, 121, 2050}) {
    INFO("count " << count << " ranks " << R);
    const Index all = scatters ? count * R : count;
    std::vector<std::vector<float>> in(R), out(R, std::vector<float>(count + 2, 9.f));
    std::vector<float> want(all);
    for (int r = 0; r < R; ++r) {
      in[r].resize(all + offset);
      for (Index i = 0; i < all; ++i) {
        in[r][i + offset] = float((i * 7 + r * 13) % 5);
        want[i] += in[r][i + offset] / R;
      }
    }
    REQUIRE(world.template run_mixed<Op, Algo, Proto, Group>(how, 2, [&](int r, auto& w) {
      w.input = in[r].data() + offset, w.output = out[r].data() + r % 2;
      w.layout = {count, scatters ? count : 0, 0, Algo::splits};
    }));
    for (int r = 0; r < R; ++r) {
      const float* const part = want.data() + (scatters ? r * count : 0);
      for (Index i = 0; i < count; ++i) {
        REQUIRE(std::abs(out[r][i + r % 2] - part[i]) < 1e-5f);
      }
      REQUIRE(out[r][count + 1] == 9.f);
      REQUIRE(out[r][(r % 2) == 0 ? count : 0] == 9.f);
    }
  }
}
template <class Proto, class Group, int R, int K>
void gathers_alike() {
  using Prims = detail::PeerPrims<Group, Proto, detail::Bytes, 1, K>;
  PeerWorld<R, K> world{Prims::half_packets(2100, 1)};
  for (const Index count : {1, 7, 121, 2050}) {
    std::vector<std::vector<char>> in(R), out(R, std::vector<char>(count * R + 3, 9));
    for (int r = 0; r < R; ++r) {
      for (Index i = 0; i < count + r; ++i) in[r].push_back(char(i * 5 + r));
    }
    REQUIRE(world.template run_mixed<AllGather, OneShot, Proto, Group>(
        detail::Bytes{}, 3, [&](int r, auto& w) {
          w.input = in[r].data() + r, w.output = out[r].data() + 2;
          w.layout = {count, 0, count, false};
        }));
    for (int r = 0; r < R; ++r) {
      for (int p = 0; p < R; ++p) {
        REQUIRE(std::equal(in[p].begin() + p, in[p].end(), out[r].begin() + 2 + p * count));
      }
      REQUIRE(out[r][1] == 9);
      REQUIRE(out[r][count * R + 2] == 9);
    }
  }
}
}  // namespace

TEST_CASE("the kernel for any buffer and number of ranks talks to the exact kernels") {
  using Eight = detail::ThreadLanes<8>;
  reduces_alike<AllReduce, OneShot, LL128, Eight, 2, 2>();
  reduces_alike<AllReduce, OneShot, LL, Eight, 3, 4>();
  reduces_alike<AllReduce, TwoShot, LL128, Eight, 2, 2>();
  reduces_alike<AllReduce, TwoShot, LL128, detail::SoloLane, 3, 4>();
  reduces_alike<AllReduce, TwoShot, LL128, detail::SoloLane, 5, 8>();
  reduces_alike<AllReduce, TwoShot, LL128Pairs, Eight, 4, 4>();
  reduces_alike<AllReduce, TwoShot, Sentinel, Eight, 2, 2>();
  reduces_alike<ReduceScatter, OneShot, LL128, Eight, 3, 4>();
  gathers_alike<LL128, Eight, 2, 2>();
  gathers_alike<LL128, Eight, 4, 4>();
}
