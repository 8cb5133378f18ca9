#include <ccl/algo/pat.hpp>

#include <algorithm>

#include "support/every_protocol.hpp"

using namespace ccl;
using namespace ccl::test;

TEMPLATE_LIST_TEST_CASE("pat: all-gather and reduce-scatter at every rank count", "",
                        EveryProtocol) {
  using Proto = typename TestType::Proto;
  using Group = typename TestType::Group;
  for (int ranks = 2; ranks <= TestType::max_ranks; ++ranks) {
    World world{ranks, 2, 4, 512};
    std::rotate(world.order().begin(), world.order().begin() + 1, world.order().end());
    for (const Index count : {0, 1, 63, 2501}) {
      for (const int steps : {1, 2}) {
        const bool in_place = (count + steps) % 2 == 0;
        check_reduce_scatter<Pat, Proto, Group>(world, count, steps, in_place);
        check_all_gather<Pat, Proto, Group>(world, 4 * count, steps, in_place);
      }
    }
  }
}

TEMPLATE_LIST_TEST_CASE("pat: broadcast and reduce at every rank count", "", EveryProtocol) {
  using Proto = typename TestType::Proto;
  using Group = typename TestType::Group;
  for (int ranks = 2; ranks <= TestType::max_ranks; ++ranks) {
    World world{ranks, 2, 8, 512};
    std::rotate(world.order().begin(), world.order().begin() + 1, world.order().end());
    for (const Index count : {0, 1, 63, 5001}) {
      for (const int root : {0, ranks - 1, int(count) % ranks}) {
        check_rooted<Pat, Proto, Group>(world, count, root);
      }
    }
  }
}

TEST_CASE("pat: the bits of a sum that rounds depend on nothing but the ranks") {
  check_same_bits<Pat>();
}
