#include "support/types_suite.hpp"

TEST_CASE("types, reductions and ranks, part 3") {
  ccl::test::run_types<3, 4>();
}
