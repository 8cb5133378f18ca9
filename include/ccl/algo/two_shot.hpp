#pragma once

#include <ccl/algo/one_shot.hpp>
#include <ccl/types/macros.hpp>

CCL_ANY_SPACE_BEGIN

namespace ccl {

/// Two hops; at most 2(R - 1)/R of the message leaves each rank. Sums are in rank order on every
/// rank.
/// - AllReduce, Reduce: rank r reduces share r and sends the result to all ranks or to the root.
/// - Broadcast: rank r receives share r from the root and sends it on.
struct TwoShot {
  static constexpr const char* name = "TwoShot";
  static constexpr bool reorders = false;
  static constexpr int boxes = 2;
  static constexpr bool splits = true;  ///< true: an all-reduce is split into shares
  using RankCounts = ccl::RankCounts<2, 4, 8, max_view_ranks>;
  template <class Op>
  static constexpr bool supports = is_one_of<Op, AllReduce, Broadcast, Reduce, AllReduceRows>;
  template <class Op>
  static constexpr CostTerms cost_terms(int ranks) {
    // On 2 H200 and 32 blocks, broadcasts of 1, 2 and 4 MiB take 5.15, 8.20 and 14.4 us.
    if (is_one_of<Op, Broadcast> && ranks == 2) return {1.3, 0.87};
    return {detail::wide_hops(ranks, 2), 2 * (ranks - 1.0) / ranks};
  }
  template <class Op>
  static constexpr SumOrder order = SumOrder::by_rank;
  /// Minimum share bytes at which the protocol's `Pairs` are faster, if it has them; 0: never.
  /// AllReduce on 2 H200 without and with pairs (peers_bench):
  /// - 1 MiB: 5.39 us, 5.16 us.
  /// - 4 MiB: 15.7 us, 15.5 us.
  /// - 16 MiB: 61.8 us, 58.7 us.
  /// Messages of 256 KiB and less are 1 to 2 % slower with pairs.
  template <class Op>
  static constexpr Index pairs_from = is_one_of<Op, AllReduce> ? Index{512} << 10 : 0;

  template <class Prims>
  CCL_HD static constexpr void run(AllReduce, Prims& prims) {
    const auto tiles = prims.tiles();
    const int me = prims.rank();
    OneShot::scatter_all(prims);
    prims.count_launch();
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

  /// Rank r reduces the r-th slice of each row. All ranks then have whole rows to finish.
  template <class Prims>
  CCL_HD static constexpr void run(AllReduceRows, Prims& prims) {
    const auto tiles = prims.tiles();
    auto next = prims.load(tiles.first);
    prims.begin();
    for (int i = tiles.first; i < tiles.last; i += tiles.step) {
      prims.scatter(0, i, next);
      next = prims.load(i + tiles.step);
    }
    prims.count_launch();
    const auto slices = prims.slices();
    for (int i = slices.first; i < slices.last; i += slices.step) prims.reduce_slice(0, 1, i);
    const auto rows = prims.rows();
    for (int r = rows.first; r < rows.last; r += rows.step) prims.finish_collected(1, r);
  }

  template <class Prims>
  CCL_HD static constexpr void run(Reduce, Prims& prims) {
    const auto tiles = prims.tiles();
    const int me = prims.rank(), root = prims.root();
    OneShot::scatter_all(prims);
    for (int t = tiles.first; t < tiles.last; t += tiles.step) {
      const auto own = prims.prepare(prims.load(me, t));
      const auto sum = prims.reduce(prims.collect(0, t), own);
      if (me == root) {
        prims.store(me, t, sum);
      } else {
        prims.push_to(root, 1, t, sum);
      }
    }
    if (me != root) return;
    for (int t = tiles.first; t < tiles.last; t += tiles.step) {
      OneShot::store_others(prims, 1, t);
    }
  }

  template <class Prims>
  CCL_HD static constexpr void run(Broadcast, Prims& prims) {
    const auto tiles = prims.tiles();
    const int me = prims.rank(), root = prims.root();
    prims.begin_in_step();
    if (!prims.await_step_of_all()) return;
    if (me == root) {
      for (int t = tiles.first; t < tiles.last; t += tiles.step) {
        const auto shares = prims.load_others(t);
        const auto own = prims.load(me, t);
        prims.scatter(0, t, shares);
        prims.push(1, t, own);
        prims.store_loaded(t, shares);
        prims.store(me, t, own);
      }
      return;
    }
    for (int t = tiles.first; t < tiles.last; t += tiles.step) {
      const auto share = prims.collect_from(root, 0, t);
      prims.push(1, t, share);
      prims.store(me, t, share);
    }
    for (int t = tiles.first; t < tiles.last; t += tiles.step) {
      OneShot::store_others(prims, 1, t);
    }
  }
};

}  // namespace ccl

CCL_ANY_SPACE_END
