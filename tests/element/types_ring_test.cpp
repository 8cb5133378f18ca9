#include <ccl/algo/ring.hpp>

#include "support/types_suite.hpp"

TEST_CASE("types, reductions and ranks: all-reduces by rings") {
  using namespace ccl::test;
  run_types<ccl::AllReduce, ccl::Ring, by_ring>();
}
