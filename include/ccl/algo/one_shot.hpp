#pragma once

#include <ccl/algo/cost.hpp>
#include <ccl/algo/rank_counts.hpp>
#include <ccl/types/macros.hpp>
#include <ccl/types/operations.hpp>
#include <ccl/types/word.hpp>

CCL_ANY_SPACE_BEGIN

namespace ccl {

/// Each rank sends to all ranks: one hop. Sums are in rank order on every rank. Data sent by each
/// rank:
/// - AllReduce: R - 1 times the message.
/// - AllGather, ReduceScatter, AllToAll: R - 1 shares.
/// - Broadcast: R - 1 times the message, by the root.
struct OneShot {
  static constexpr const char* name = "OneShot";
  static constexpr bool reorders = false;
  static constexpr int boxes = 1;
  static constexpr bool splits = false;  ///< true: an all-reduce is split into shares
  using RankCounts = ccl::RankCounts<2, 4, 8, max_view_ranks>;
  template <class Op>
  static constexpr bool supports =
      is_one_of<Op, AllReduce, AllGather, ReduceScatter, AllToAll, Reduce, AllToAllV, Broadcast,
                Gather, Scatter, SendRecv, AllReduceRows>;
  /// True if the operation runs as messages between any two ranks, for any number of ranks.
  template <class Op>
  static constexpr bool exchanges = is_one_of<Op, AllToAllV, Broadcast, Gather, Scatter, SendRecv>;
  template <class Op>
  static constexpr CostTerms cost_terms(int ranks) {
    const double others = ranks - 1;
    // Each of the root's messages to the others, or theirs to the root, has the length of one
    // message.
    constexpr bool whole = is_one_of<Op, AllReduce, Reduce, Broadcast>;
    // A lone message passes the scratch at 221 GB/s (64 MiB on 4 H200), one of two ranks at 247 to
    // 266 (4 to 16 MiB on 2 H200, 32 blocks), and messages of many peers at 290 GB/s or more.
    if constexpr (is_one_of<Op, SendRecv>) return {1, ranks == 2 ? 1.12 : 1.31};
    return {detail::wide_hops(ranks, 1), whole ? others : others / ranks};
  }
  template <class Op>
  static constexpr SumOrder order = SumOrder::by_rank;

  template <class Prims>
  CCL_HD static constexpr void run(AllReduce, Prims& prims) {
    run_tiles(
        prims, [&](int t) { return prims.load(0, t); },
        [&](int t, const auto& own) { prims.push(0, t, prims.prepare(own)); },
        [&](int t) { finish(prims, 0, t); });
  }

  template <class Prims>
  CCL_HD static constexpr void run(AllReduceRows, Prims& prims) {
    const auto tiles = prims.tiles();
    auto next = prims.load(tiles.first);
    prims.begin();
    for (int i = tiles.first; i < tiles.last; i += tiles.step) {
      prims.push(0, i, next);
      next = prims.load(i + tiles.step);
    }
    prims.count_launch();
    const auto rows = prims.rows();
    for (int r = rows.first; r < rows.last; r += rows.step) prims.finish_reduced(0, r);
  }

  template <class Prims>
  CCL_HD static constexpr void run(Reduce, Prims& prims) {
    const auto tiles = prims.tiles();
    const int root = prims.root();
    prims.begin_in_step();
    if (prims.rank() == root) {
      for (int t = tiles.first; t < tiles.last; t += tiles.step) finish(prims, 0, t);
      return;
    }
    auto next = prims.load(0, tiles.first);
    if (!prims.await_step(root)) return;
    for (int t = tiles.first; t < tiles.last; t += tiles.step) {
      prims.push_to(root, 0, t, prims.prepare(next));
      next = prims.load(0, t + tiles.step);
    }
  }

  template <class Prims>
  CCL_HD static constexpr void run(AllGather, Prims& prims) {
    run_tiles(
        prims, [&](int t) { return prims.load(0, t); },
        [&](int t, const auto& own) {
          prims.push(0, t, own);
          prims.store(prims.rank(), t, own);
        },
        [&](int t) { store_others(prims, 0, t); });
  }

  template <class Prims>
  CCL_HD static constexpr void run(ReduceScatter, Prims& prims) {
    run_tiles(
        prims, [&](int t) { return prims.load_others(t); },
        [&](int t, const auto& others) { prims.scatter(0, t, others); },
        [&](int t) { finish(prims, prims.rank(), t); });
  }

  template <class Prims>
  CCL_HD static constexpr void run(AllToAll, Prims& prims) {
    const auto load = [&](int t) { return prims.load_others(t); };
    const auto push = [&](int t, const auto& others) { prims.scatter(0, t, others); };
    const auto collect = [&](int t) {
      prims.store(prims.rank(), t, prims.load(prims.rank(), t));
      store_others(prims, 0, t);
    };
    if constexpr (Prims::max_ranks <= 4) {
      run_tiles(prims, load, push, collect);
    } else {  // both at once need more registers than there are
      const auto tiles = prims.tiles();
      scatter_all(prims);
      prims.count_launch();
      for (int t = tiles.first; t < tiles.last; t += tiles.step) collect(t);
    }
  }

  /// Runs messages of any size between any two ranks.
  template <class Exchange>
    requires requires(Exchange& exchange) { exchange.push_all(); }
  CCL_HD static constexpr void run(Exchange& exchange) {
    exchange.begin();
    exchange.push_all();
    exchange.collect_all();
  }

  /// Sends each peer its share: the first half of the algorithms of two hops too.
  template <class Prims>
  CCL_HD static constexpr void scatter_all(Prims& prims) {
    const auto tiles = prims.tiles();
    auto next = prims.load_others(tiles.first);
    prims.begin();
    for (int t = tiles.first; t < tiles.last; t += tiles.step) {
      prims.scatter(0, t, next);
      next = prims.load_others(t + tiles.step);
    }
  }
  /// Stores the data that the peers sent, each to its rank's share. The share of an absent rank has
  /// no elements.
  template <class Prims>
  CCL_HD static constexpr void store_others(Prims& prims, int box, int t) {
    if constexpr (Prims::max_ranks > max_unrolled_ranks) {
      prims.store_others(box, t);
    } else {
      const auto all = prims.collect(box, t);
      CCL_UNROLL for (int r = 0; r < Prims::max_ranks; ++r) {
        if (r != prims.rank()) prims.store(r, t, all.of[r]);
      }
    }
  }

 private:
  /// Pushes a group's tiles and collects those of the peers, one tile behind. The wires then carry
  /// the next tiles while a tile is collected: on 32 blocks a group has several.
  template <class Prims, class Load, class Push, class Collect>
  CCL_HD static constexpr void run_tiles(Prims& prims, Load load, Push push, Collect collect) {
    const auto tiles = prims.tiles();
    auto next = load(tiles.first);
    prims.begin();
    for (int t = tiles.first, late = t - tiles.step; late < tiles.last; late = t, t += tiles.step) {
      if (t < tiles.last) push(t, next);
      if (late == tiles.first) prims.count_launch();
      if (late >= tiles.first) collect(late);
      next = load(t + tiles.step);  // after the collected tiles have left the registers
    }
  }
  /// Stores tile t of the sum of a share.
  template <class Prims>
  CCL_HD static constexpr void finish(Prims& prims, int share, int t) {
    const auto own = prims.prepare(prims.load(share, t));
    prims.store(0, t, prims.reduce(prims.collect(0, t), own));
  }
};

}  // namespace ccl

CCL_ANY_SPACE_END
