#pragma once

// Tests of an algorithm on every protocol, on CPU lanes of two widths.
#include <ccl/proto/ll.hpp>
#include <ccl/proto/ll128.hpp>
#include <ccl/proto/simple.hpp>

#include <algorithm>
#include <tuple>
#include <vector>

#include "catch.hpp"
#include "thread_lanes.hpp"
#include "world.hpp"

namespace ccl::test {

template <class P, class G>
struct OnLanes {
  using Proto = P;
  using Group = G;
  static constexpr int max_ranks = G::width == 1 ? 9 : 3;  // whose threads a machine bears
};
using EveryProtocol =
    std::tuple<OnLanes<LL, detail::SoloLane>, OnLanes<LL128, detail::SoloLane>,
               OnLanes<Simple, detail::SoloLane>, OnLanes<LL128, detail::ThreadLanes<8>>>;

/// Input of the ranks, and their sum.
struct Given {
  std::vector<std::vector<int>> in;
  std::vector<int> sum;
  Given(int ranks, Index count) : in(ranks, std::vector<int>(count)), sum(count) {
    for (int r = 0; r < ranks; ++r) {
      for (Index i = 0; i < count; ++i) sum[i] += in[r][i] = int(i * 3 + r * 1000);
    }
  }
};

/// An all-reduce of `count` elements, each of which is checked on every rank.
template <class Algo, class Proto, class Group>
void check_all_reduce(World& world, Index count, int chunk_steps, bool in_place) {
  const int ranks = world.ranks();
  INFO(Proto::name << " ranks " << ranks << " count " << count << " in place " << in_place);
  Given given{ranks, count};
  auto out = given.in;
  auto& results = in_place ? given.in : out;
  const detail::Reduction<Sum, int> sum{Sum{}, ranks};
  REQUIRE(world.run<AllReduce, Algo, Proto, Group>(sum, 1, chunk_steps, 0, [&](int r, auto& w) {
    w.input = given.in[r].data();
    w.output = results[r].data();
    w.layout = {count, 0, 0, false};
  }));
  for (int r = 0; r < ranks; ++r) REQUIRE(results[r] == given.sum);
}

/// A reduce and a broadcast. Ranks other than the root of a reduce receive nothing.
template <class Algo, class Proto, class Group>
void check_rooted(World& world, Index count, int root) {
  const int ranks = world.ranks();
  INFO(Proto::name << " ranks " << ranks << " count " << count << " root " << root);
  const Given given{ranks, count};
  const std::vector<int> untouched(count, -1);
  std::vector<std::vector<int>> out(ranks, untouched);
  const auto buffers = [&](int r, auto& w) {
    w.input = given.in[r].data();
    w.output = out[r].data();
    w.layout = {count, 0, 0, false};
  };
  const detail::Reduction<Sum, int> sum{Sum{}, ranks};
  REQUIRE(world.run<Reduce, Algo, Proto, Group>(sum, 1, 1, root, buffers));
  for (int r = 0; r < ranks; ++r) REQUIRE(out[r] == (r == root ? given.sum : untouched));
  REQUIRE(
      world.run<Broadcast, Algo, Proto, Group>(detail::Bytes{}, 1, 1, root, [&](int r, auto& w) {
        buffers(r, w);
        w.layout.count *= Index{sizeof(int)};
      }));
  for (int r = 0; r < ranks; ++r) REQUIRE(out[r] == given.in[root]);
}

/// An all-gather of `count` bytes of each rank.
template <class Algo, class Proto, class Group>
void check_all_gather(World& world, Index count, int chunk_steps, bool in_place) {
  const int ranks = world.ranks();
  INFO(Proto::name << " ranks " << ranks << " count " << count << " in place " << in_place);
  std::vector<std::vector<char>> in(ranks, std::vector<char>(count)),
      out(ranks, std::vector<char>(ranks * count, -1));
  std::vector<char> want;
  for (int r = 0; r < ranks; ++r) {
    for (Index i = 0; i < count; ++i) in[r][i] = char(i * 3 + r * 11);
    want.insert(want.end(), in[r].begin(), in[r].end());
    if (in_place) std::copy(in[r].begin(), in[r].end(), out[r].begin() + r * count);
  }
  REQUIRE(world.run<AllGather, Algo, Proto, Group>(
      detail::Bytes{}, 1, chunk_steps, 0, [&](int r, auto& w) {
        w.input = in_place ? out[r].data() + r * count : in[r].data();
        w.output = out[r].data();
        w.layout = {count, 0, count, false};
      }));
  for (int r = 0; r < ranks; ++r) REQUIRE(out[r] == want);
}

/// A reduce-scatter with `count` elements for each rank; every element of the results is checked.
template <class Algo, class Proto, class Group>
void check_reduce_scatter(World& world, Index count, int chunk_steps, bool in_place) {
  const int ranks = world.ranks();
  INFO(Proto::name << " ranks " << ranks << " count " << count << " in place " << in_place);
  const detail::Reduction<Sum, int> sum{Sum{}, ranks};
  std::vector<std::vector<int>> in(ranks, std::vector<int>(ranks * count)), out = in;
  std::vector<int> sums(ranks * count);
  for (int r = 0; r < ranks; ++r) {
    for (Index i = 0; i < ranks * count; ++i) sums[i] += in[r][i] = int(i * 3 + r * 1000);
  }
  const auto result = [&](int r) { return in_place ? in[r].data() + r * count : out[r].data(); };
  REQUIRE(world.run<ReduceScatter, Algo, Proto, Group>(sum, 1, chunk_steps, 0, [&](int r, auto& w) {
    w.input = in[r].data();
    w.output = result(r);
    w.layout = {count, count, 0, false};
  }));
  for (int r = 0; r < ranks; ++r) {
    REQUIRE(std::equal(result(r), result(r) + count, sums.begin() + r * count));
  }
}

/// The bits of a reduce-scatter that rounds depend neither on channels nor on the size of slots.
template <class Algo>
void check_same_bits() {
  for (int ranks = 3; ranks <= 8; ++ranks) {
    World narrow{ranks, 1, 2, 128}, wide{ranks, 2, 8, 4096};
    const detail::Reduction<Sum, float> sum{Sum{}, ranks};
    const Index count = 700;
    std::vector<std::vector<float>> in(ranks), a(ranks, std::vector<float>(count)), b = a;
    for (int r = 0; r < ranks; ++r) {
      for (Index i = 0; i < ranks * count; ++i) {
        in[r].push_back(1.f / float(1 + i * 7 + r * r * 31));
      }
    }
    for (World* const world : {&narrow, &wide}) {
      REQUIRE(world->run<ReduceScatter, Algo, Simple, detail::SoloLane>(
          sum, 1, 1, 0, [&](int r, auto& w) {
            w.input = in[r].data();
            w.output = (world == &narrow ? a : b)[r].data();
            w.layout = {count, count, 0, false};
          }));
    }
    REQUIRE(a == b);
  }
}

}  // namespace ccl::test
