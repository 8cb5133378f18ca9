#include <ccl/algo/ordered_chain.hpp>

#include "support/affine.hpp"
#include "support/every_protocol.hpp"

using namespace ccl;
using namespace ccl::test;

TEMPLATE_LIST_TEST_CASE("ordered chain: reduce-scatter at every rank count", "", EveryProtocol) {
  using Proto = typename TestType::Proto;
  using Group = typename TestType::Group;
  for (int ranks = 2; ranks <= TestType::max_ranks; ++ranks) {
    World world{ranks, 2, 4, 512};
    for (const Index count : {0, 1, 63, 2501}) {
      for (const int steps : {1, 2}) {
        check_reduce_scatter<OrderedChain, Proto, Group>(world, count, steps,
                                                         (count + steps) % 2 == 0);
      }
    }
  }
}

TEST_CASE("ordered chain: a functor that is not commutative meets the ranks in order") {
  for (int ranks = 2; ranks <= 9; ++ranks) {
    World world{ranks, 2, 8, 512};
    const detail::Reduction<Then, Affine> then{Then{}, ranks};
    for (const Index count : {1, 63, 5001}) {
      const Index all = ranks * count;
      std::vector<std::vector<Affine>> in(ranks, std::vector<Affine>(all)),
          out(ranks, std::vector<Affine>(count));
      std::vector<Affine> want(all);
      for (int r = 0; r < ranks; ++r) {
        for (Index i = 0; i < all; ++i) want[i] = Then{}(want[i], in[r][i] = affine_of(r, i));
      }
      INFO("ranks " << ranks << " count " << count);
      REQUIRE(world.run<ReduceScatter, OrderedChain, Simple, detail::SoloLane>(
          then, 1, 2, 0, [&](int r, auto& w) {
            w.input = in[r].data();
            w.output = out[r].data();
            w.layout = {count, count, 0, false};
          }));
      for (int r = 0; r < ranks; ++r) {
        REQUIRE(std::equal(out[r].begin(), out[r].end(), want.begin() + r * count));
      }
    }
  }
}

TEST_CASE("ordered chain: a result that goes on to its rank is an average") {
  const int ranks = 5;
  const Index count = 700;
  World world{ranks, 1, 8, 512};
  const detail::Reduction<Avg, float> avg{Avg{}, ranks};
  std::vector<std::vector<float>> in(ranks), out(ranks, std::vector<float>(count));
  for (int r = 0; r < ranks; ++r) in[r].assign(ranks * count, float(r * ranks));
  REQUIRE(world.run<ReduceScatter, OrderedChain, Simple, detail::SoloLane>(
      avg, 1, 1, 0, [&](int r, auto& w) {
        w.input = in[r].data();
        w.output = out[r].data();
        w.layout = {count, count, 0, false};
      }));
  for (const auto& of_rank : out) {
    REQUIRE(of_rank == std::vector<float>(count, float(ranks * (ranks - 1)) / 2));
  }
}

TEST_CASE("ordered chain: the bits of a sum that rounds depend on nothing but the ranks") {
  check_same_bits<OrderedChain>();
}
