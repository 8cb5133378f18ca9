#pragma once

#include <ccl/algo/one_shot.hpp>

namespace ccl {

/// Rank r reduces share r and sends the result to everybody. Two hops; 2(R - 1)/R of the message
/// leaves each rank. Sums go in rank order on every rank.
struct TwoShot {
  static constexpr const char* name = "TwoShot";
  static constexpr bool reorders = false;
  static constexpr int boxes = 2;
  static constexpr bool splits = true;  // an all-reduce into shares
  using RankCounts = ccl::RankCounts<2, 4, 8>;
  template <class Op>
  static constexpr bool supports = detail::one_of<Op, AllReduce>;
  template <class Op>
  static constexpr Effort effort(int ranks) {
    return {2, 2 * (ranks - 1.0) / ranks};
  }
  template <class Op>
  static constexpr SumOrder order = SumOrder::by_rank;

  template <class Prims>
  CCL_HD static constexpr void run(AllReduce, Prims& prims) {
    const auto tiles = prims.tiles();
    const int me = prims.rank();
    OneShot::scatter_all(prims);
    for (int t = tiles.first; t < tiles.last; t += tiles.step) {
      const auto own = prims.prepare(prims.load(me, t));
      const auto sum = prims.reduce(prims.collect(0, t), own);
      prims.push(1, t, sum);
      prims.store(me, t, sum);
    }
    for (int t = tiles.first; t < tiles.last; t += tiles.step) {
      OneShot::store_others(prims, 1, t);
    }
  }
};

}  // namespace ccl
