#pragma once

#include <ccl/algo/tree.hpp>

namespace ccl {

/// Tree, but for one tree that all channels of an all-reduce share: which values are added to which
/// depends on nothing but the number of ranks, at the price of ranks that are inner for the whole
/// message and ranks that are leaves.
struct OneTree : Tree {
  using Validated = OneTree;  // tests prove it: compositions need no dry run
  static constexpr const char* name = "OneTree";
  static constexpr bool one_tree = true;
  template <class Op>
  static constexpr bool supports = is_one_of<Op, AllReduce>;
  template <class Op>
  static constexpr CostTerms cost_terms(int ranks) {
    return {Tree::cost_terms<Op>(ranks).hops, ranks > 2 ? 3.3 : 1.2};
  }
  template <class Op>
  static constexpr SumOrder order = SumOrder::tree;
};

}  // namespace ccl
