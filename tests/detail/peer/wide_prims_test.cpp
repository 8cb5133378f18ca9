// The kernel that receives the number of ranks at run time.
#include <ccl/algo/one_shot.hpp>
#include <ccl/algo/two_shot.hpp>
#include <ccl/detail/peer/wide_prims.hpp>
#include <ccl/proto/sentinel.hpp>

#include <vector>

#include "support/catch.hpp"
#include "support/peer_world.hpp"
#include "support/thread_lanes.hpp"

using namespace ccl;
using namespace ccl::test;

namespace {
using Lane = detail::SoloLane;
using Summed = detail::Reduction<Sum, float>;

/// Sums of floats of very different sizes: another order has other bits.
template <class Op, class Algo, class Proto, class Group, int R>
void reduces_in_rank_order() {
  INFO(Op::name << ", " << Algo::name << ", " << Proto::name << ", " << R << " ranks");
  using Prims = detail::PeerPrims<Group, Proto, Summed, 1, max_view_ranks>;
  constexpr bool scatters = std::is_same_v<Op, ReduceScatter>;
  PeerWorld<R, max_view_ranks> world{2 * Prims::half_packets(700, 2)};
  for (const Index count : {1, 31, 650}) {
    const Index all = scatters ? count * R : count;
    std::vector<std::vector<float>> in(R), out(R, std::vector<float>(count + 1, 9.f));
    std::vector<float> want(all);
    for (int r = 0; r < R; ++r) {
      for (Index i = 0; i < all; ++i) {
        in[r].push_back(float(i % 5 + 1) * ((r * 7 + i) % 3 == 0 ? 1e8f : 0.7f));
        want[i] = r == 0 ? in[r][i] : want[i] + in[r][i];
      }
    }
    for (int launch = 0; launch < 3; ++launch) {  // both halves, and one again
      REQUIRE(world.template run<Op, Algo, Proto, Group>(Summed{Sum{}, R}, 2, [&](int r, auto& w) {
        w.input = in[r].data(), w.output = out[r].data();
        w.layout = {count, scatters ? count : 0, 0, Algo::splits};
      }));
      for (int r = 0; r < R; ++r) {
        const float* const part = want.data() + (scatters ? r * count : 0);
        REQUIRE(std::equal(part, part + count, out[r].data()));
        REQUIRE(out[r][count] == 9.f);
      }
    }
  }
}
template <class Op, class Proto, class Group, int R>
void moves() {
  INFO(Op::name << ", " << Proto::name << ", " << R << " ranks");
  using Prims = detail::PeerPrims<Group, Proto, detail::Bytes, 1, max_view_ranks>;
  constexpr bool gathers = std::is_same_v<Op, AllGather>;
  PeerWorld<R, max_view_ranks> world{Prims::half_packets(900, 1)};
  for (const Index count : {1, 121, 850}) {
    std::vector<std::vector<char>> in(R), out(R, std::vector<char>(count * R + 1, 9));
    for (int r = 0; r < R; ++r) {
      for (Index i = 0; i < (gathers ? count : count * R); ++i) in[r].push_back(char(i * 5 + r));
    }
    REQUIRE(world.template run<Op, OneShot, Proto, Group>(detail::Bytes{}, 3, [&](int r, auto& w) {
      w.input = in[r].data(), w.output = out[r].data();
      w.layout = {count, gathers ? 0 : count, count, false};
    }));
    for (int r = 0; r < R; ++r) {
      for (int p = 0; p < R; ++p) {
        const char* const from = in[p].data() + (gathers ? 0 : r * count);
        REQUIRE(std::equal(from, from + count, out[r].data() + p * count));
      }
      REQUIRE(out[r][count * R] == 9);
    }
  }
}
template <int R>
void reduces_all() {
  reduces_in_rank_order<AllReduce, OneShot, LL, Lane, R>();
  reduces_in_rank_order<AllReduce, OneShot, Sentinel, Lane, R>();
  reduces_in_rank_order<AllReduce, TwoShot, LL, Lane, R>();
  reduces_in_rank_order<ReduceScatter, OneShot, LL, Lane, R>();
}
}  // namespace

TEST_CASE("sums of any number of ranks are in rank order") {
  reduces_all<9>();   // the last batch is one rank
  reduces_all<16>();  // two full batches
  reduces_all<19>();
  reduces_in_rank_order<AllReduce, OneShot, LL128, detail::ThreadLanes<8>, 9>();
}

TEST_CASE("data of any number of ranks reaches all ranks") {
  moves<AllGather, LL, Lane, 9>();
  moves<AllGather, LL, Lane, 19>();
  moves<AllToAll, LL, Lane, 9>();
  moves<AllToAll, LL, Lane, 19>();
}
