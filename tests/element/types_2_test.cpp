#include "support/types_suite.hpp"

TEST_CASE("types, reductions and ranks, part 2") {
  ccl::test::run_types<2, 4>();
}
