#include <ccl/algo/doubling.hpp>

#include "support/types_suite.hpp"

TEST_CASE("types, reductions and ranks: all-reduces by doubling") {
  using namespace ccl::test;
  run_types<ccl::AllReduce, ccl::Doubling, by_doubling>();
}
