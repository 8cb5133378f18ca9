#pragma once

// For tests of an algorithm on every protocol, on CPU lanes of two widths.
#include <ccl/proto/ll.hpp>
#include <ccl/proto/ll128.hpp>
#include <ccl/proto/simple.hpp>

#include <algorithm>
#include <tuple>
#include <vector>

#include "catch.hpp"
#include "world.hpp"

namespace ccl::test {

template <class P, class G>
struct OnLanes {
  using Proto = P;
  using Group = G;
  static constexpr int most_ranks = G::width == 1 ? 9 : 3;  // whose threads a machine bears
};
using EveryProtocol = std::tuple<OnLanes<LL, SoloLane>, OnLanes<LL128, SoloLane>,
                                 OnLanes<Simple, SoloLane>, OnLanes<LL128, ThreadLanes<8>>>;

/// A reduce-scatter with `count` elements for each rank; every element of the results is checked.
template <class Algo, class Proto, class Group>
void check_reduce_scatter(World& world, Index count, int chunk_steps, bool in_place) {
  const int ranks = world.ranks();
  INFO(Proto::name << " ranks " << ranks << " count " << count << " in place " << in_place);
  const Reduction<Sum, int> sum{Sum{}, ranks};
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

}  // namespace ccl::test
