#include <ccl/algo/halving.hpp>

#include <algorithm>

#include "support/every_protocol.hpp"

using namespace ccl;
using namespace ccl::test;

TEMPLATE_LIST_TEST_CASE("halving: reduce-scatter at every rank count", "", EveryProtocol) {
  using Proto = typename TestType::Proto;
  using Group = typename TestType::Group;
  for (int ranks = 2; ranks <= TestType::max_ranks; ++ranks) {
    World world{ranks, 2, 4, 512};
    std::rotate(world.order().begin(), world.order().begin() + 1, world.order().end());
    for (const Index count : {0, 1, 63, 2501}) {
      for (const int steps : {1, 2}) {
        check_reduce_scatter<Halving, Proto, Group>(world, count, steps, (count + steps) % 2 == 0);
      }
    }
  }
}

TEST_CASE("halving: more than one block of ranks") {
  World world{17, 1, 4, 512};
  for (const Index count : {5, 700}) {
    check_reduce_scatter<Halving, Simple, detail::SoloLane>(world, count, 1, false);
  }
}

TEST_CASE("halving: an average is scaled once, whoever has a partner") {
  for (int ranks = 2; ranks <= 6; ++ranks) {
    World world{ranks, 1, 4, 512};
    const detail::Reduction<Avg, float> avg{Avg{}, ranks};
    const Index count = 100;
    std::vector<std::vector<float>> in(ranks, std::vector<float>(ranks * count)),
        out(ranks, std::vector<float>(count));
    for (int r = 0; r < ranks; ++r) std::fill(in[r].begin(), in[r].end(), float(r * ranks));
    REQUIRE(world.run<ReduceScatter, Halving, Simple, detail::SoloLane>(
        avg, 1, 1, 0, [&](int r, auto& w) {
          w.input = in[r].data();
          w.output = out[r].data();
          w.layout = {count, count, 0, false};
        }));
    const float want = float(ranks * (ranks - 1)) / 2;
    for (int r = 0; r < ranks; ++r) {
      for (const float x : out[r]) REQUIRE(x == Approx(want));
    }
  }
}

TEST_CASE("halving: the bits of a sum that rounds depend on nothing but the ranks") {
  check_same_bits<Halving>();
}
