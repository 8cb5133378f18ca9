#pragma once

#include <ccl/algo/tree.hpp>

namespace ccl {

/// `Tree` with one tree that all channels of an all-reduce share. The order of additions depends
/// only on the number of ranks. In return, a rank is an inner node or a leaf for the whole message.
struct OneTree : Tree {
  using Validated = OneTree;  // tests validate the algorithm: compositions need no dry run
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
