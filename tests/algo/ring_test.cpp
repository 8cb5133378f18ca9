// The ring's collectives over every protocol, on CPU lanes of three widths, ranks as threads.
#include <ccl/algo/ring.hpp>
#include <ccl/proto/ll.hpp>
#include <ccl/proto/ll128.hpp>
#include <ccl/proto/simple.hpp>

#include <algorithm>
#include <tuple>

#include "support/brief.hpp"
#include "support/catch.hpp"
#include "support/thread_lanes.hpp"
#include "support/world.hpp"

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
using Cases =
    std::tuple<Case<LL, detail::SoloLane, float, 4>, Case<LL128, detail::SoloLane, float, 3>,
               Case<Simple, detail::SoloLane, float, 4>, Case<LL, detail::ThreadLanes<8>, float, 2>,
               Case<LL128, detail::ThreadLanes<8>, int16_t, 2>,
               Case<Simple, detail::ThreadLanes<8>, double, 2>,
               Case<LL128, detail::ThreadLanes<32>, float, 2>,
               Case<LL128, detail::SoloLane, int8_t, 2>, Case<Simple, detail::SoloLane, int8_t, 5>>;

template <class T>
T input(int rank, Index i) {
  return T((i * 7 + rank * 13) % 5);
}
}  // namespace

TEMPLATE_LIST_TEST_CASE("ring: all-reduce and its halves", "", Cases) {
  using T = typename TestType::T;
  using Proto = typename TestType::Proto;
  using Group = typename TestType::Group;
  constexpr int R = TestType::ranks;
  World world{R, 2, 4, 1024};
  std::rotate(world.order().begin(), world.order().begin() + 1, world.order().end());
  const detail::Reduction<Sum, T> sum{Sum{}, R};
  const auto counts =
      brief ? std::vector<Index>{7, 1000} : std::vector<Index>{1, 0, 7, 64, 121, 1000, 4099};
  for (const Index count : counts) {
    INFO("count " << count);
    std::vector<std::vector<T>> in(R, std::vector<T>(count)), out(R, std::vector<T>(count + 4));
    for (int r = 0; r < R; ++r) {
      for (Index i = 0; i < count; ++i) in[r][i] = input<T>(r, i);
    }
    std::vector<T> want(count);
    for (Index i = 0; i < count; ++i) {
      int s = 0;
      for (int r = 0; r < R; ++r) s += int(input<T>(r, i));
      want[i] = T(s);
    }
    REQUIRE(world.run<AllReduce, Ring, Proto, Group>(sum, 1, 2, 0, [&](int r, auto& w) {
      w.input = in[r].data();
      w.output = out[r].data();
      w.layout = {count, 0, 0, true};
    }));
    for (int r = 0; r < R; ++r) {
      REQUIRE(std::equal(want.begin(), want.end(), out[r].begin()));
      REQUIRE(out[r][count] == T{});
    }
    // Broadcast of one rank's input.
    REQUIRE(
        world.run<Broadcast, Ring, Proto, Group>(detail::Bytes{}, 1, 1, R - 1, [&](int r, auto& w) {
          w.input = in[r].data();
          w.output = out[r].data();
          w.layout = {count * Index{sizeof(T)}, 0, 0, false};
        }));
    for (int r = 0; r < R; ++r)
      REQUIRE(std::equal(in[R - 1].begin(), in[R - 1].end(), out[r].begin()));
    REQUIRE(world.run<Reduce, Ring, Proto, Group>(sum, 1, 1, 1, [&](int r, auto& w) {
      w.input = in[r].data();
      w.output = out[r].data();
      w.layout = {count, 0, 0, false};
    }));
    REQUIRE(std::equal(want.begin(), want.end(), out[1].begin()));
    // All-gather, then reduce-scatter of what it gave: R times the input.
    std::vector<std::vector<T>> all(R, std::vector<T>(count * R));
    REQUIRE(world.run<AllGather, Ring, Proto, Group>(detail::Bytes{}, 1, 2, 0, [&](int r, auto& w) {
      w.input = in[r].data();
      w.output = all[r].data();
      w.layout = {count * Index{sizeof(T)}, 0, count * Index{sizeof(T)}, false};
    }));
    for (int r = 0; r < R; ++r) {
      for (int s = 0; s < R; ++s) {
        REQUIRE(std::equal(in[s].begin(), in[s].end(), all[r].begin() + s * count));
      }
    }
    REQUIRE(world.run<ReduceScatter, Ring, Proto, Group>(sum, 1, 2, 0, [&](int r, auto& w) {
      w.input = all[r].data();
      w.output = out[r].data();
      w.layout = {count, count, 0, false};
    }));
    for (int r = 0; r < R; ++r) {
      for (Index i = 0; i < count; ++i) REQUIRE(out[r][i] == T(int(in[r][i]) * R));
    }
  }
}

namespace {
/// So odd that only every 128th is aligned as chunks are to be.
struct Long {
  unsigned char byte[257];
};
struct AddLong {
  Long operator()(Long a, const Long& b) const {
    for (int i = 0; i < 257; ++i) a.byte[i] = static_cast<unsigned char>(a.byte[i] + b.byte[i]);
    return a;
  }
};
using OfLong = std::tuple<Simple, LL, LL128>;
}  // namespace

TEMPLATE_LIST_TEST_CASE("ring: chunks fit the wire where a slot holds few elements", "", OfLong) {
  constexpr int R = 3;
  World world{R, 2, 2, 4096};
  const detail::Reduction<AddLong, Long> sum{AddLong{}, R};
  for (const Index count : {0, 1, 7, 300}) {
    INFO("count " << count);
    std::vector<std::vector<Long>> in(R, std::vector<Long>(count)), out = in;
    for (int r = 0; r < R; ++r) {
      for (Index i = 0; i < count; ++i) in[r][i].byte[256] = static_cast<unsigned char>(i + r);
    }
    REQUIRE(
        world.run<AllReduce, Ring, TestType, detail::SoloLane>(sum, 1, 1, 0, [&](int r, auto& w) {
          w.input = in[r].data();
          w.output = out[r].data();
          w.layout = {count, 0, 0, true};
        }));
    for (int r = 0; r < R; ++r) {
      for (Index i = 0; i < count; ++i) {
        REQUIRE(out[r][i].byte[256] == static_cast<unsigned char>(3 * i + 3));
        REQUIRE(out[r][i].byte[0] == 0);
      }
    }
  }
}
