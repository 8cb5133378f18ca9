#include "support/types_suite.hpp"

TEST_CASE("types, reductions and ranks, part 1") {
  ccl::test::run_types<1, 4>();
}
