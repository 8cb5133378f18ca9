#include "support/types_suite.hpp"

TEST_CASE("types, reductions and ranks, part 0") {
  ccl::test::run_types<0, 4>();
}
