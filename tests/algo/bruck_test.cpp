#include <ccl/algo/bruck.hpp>

#include "support/every_protocol.hpp"

using namespace ccl;
using namespace ccl::test;

TEMPLATE_LIST_TEST_CASE("bruck: all-gather at every rank count", "", EveryProtocol) {
  using Proto = typename TestType::Proto;
  using Group = typename TestType::Group;
  for (int ranks = 2; ranks <= TestType::max_ranks; ++ranks) {
    World world{ranks, 2, 2, 512};  // a wire holds less than the shares of a round
    for (const Index count : {0, 1, 63, 5001}) {
      for (const bool in_place : {false, true}) {
        check_all_gather<Bruck, Proto, Group>(world, count, 1, in_place);
      }
    }
  }
}
