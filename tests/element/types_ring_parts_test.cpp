#include <ccl/algo/ring.hpp>

#include "support/types_suite.hpp"

TEST_CASE("types, reductions and ranks: reduce-scatters and reduces by rings") {
  using namespace ccl::test;
  run_types<ccl::ReduceScatter, ccl::Ring, parts_by_ring>();
  run_types<ccl::Reduce, ccl::Ring, to_root_by_ring>();
}
