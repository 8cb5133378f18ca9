#include <ccl/algo/tree.hpp>

#include "support/types_suite.hpp"

TEST_CASE("types, reductions and ranks: all-reduces and reduces by trees") {
  using namespace ccl::test;
  run_types<ccl::AllReduce, ccl::Tree, by_tree>();
  run_types<ccl::Reduce, ccl::Tree, to_root_by_tree>();
}
