#include <ccl/algo/doubling.hpp>

#include <algorithm>

#include "support/every_protocol.hpp"

using namespace ccl;
using namespace ccl::test;

TEMPLATE_LIST_TEST_CASE("doubling: all-reduce at every rank count", "", EveryProtocol) {
  using Proto = typename TestType::Proto;
  using Group = typename TestType::Group;
  for (int ranks = 2; ranks <= TestType::max_ranks; ++ranks) {
    World world{ranks, 2, 8, 512};
    for (const Index count : {0, 1, 63, 5001}) {
      for (const bool in_place : {false, true}) {
        check_all_reduce<Doubling, Proto, Group>(world, count, 1, in_place);
      }
    }
  }
}

TEMPLATE_LIST_TEST_CASE("doubling: all-gather at every rank count", "", EveryProtocol) {
  using Proto = typename TestType::Proto;
  using Group = typename TestType::Group;
  for (int ranks = 2; ranks <= TestType::max_ranks; ++ranks) {
    World world{ranks, 2, 4, 512};
    std::rotate(world.order().begin(), world.order().begin() + 1, world.order().end());
    for (const Index count : {0, 1, 63, 5001}) {
      for (const bool in_place : {false, true}) {
        check_all_gather<Doubling, Proto, Group>(world, count, 1, in_place);
      }
    }
  }
}

TEST_CASE("doubling: all ranks get the same bits of a sum that rounds") {
  for (int ranks = 2; ranks <= 8; ++ranks) {
    World world{ranks, 1, 8, 512};
    const detail::Reduction<Sum, float> sum{Sum{}, ranks};
    const Index count = 500;
    std::vector<std::vector<float>> in(ranks, std::vector<float>(count)), out = in;
    for (int r = 0; r < ranks; ++r) {
      for (Index i = 0; i < count; ++i) in[r][i] = 1.0f / float(1 + i * ranks + r * r);
    }
    REQUIRE(
        world.run<AllReduce, Doubling, Simple, detail::SoloLane>(sum, 1, 1, 0, [&](int r, auto& w) {
          w.input = in[r].data();
          w.output = out[r].data();
          w.layout = {count, 0, 0, false};
        }));
    for (int r = 1; r < ranks; ++r) REQUIRE(out[r] == out[0]);
  }
}

TEST_CASE("doubling: what it takes") {
  STATIC_REQUIRE(Doubling::supports_reduction<Sum>);
  STATIC_REQUIRE(!Doubling::supports_reduction<Avg>);
  STATIC_REQUIRE(!Doubling::supports_reduction<PreMulSum>);
}
