#pragma once

#include <ccl/algo/cost.hpp>
#include <ccl/algo/rank_counts.hpp>
#include <ccl/element/switch_op.hpp>
#include <ccl/types/macros.hpp>
#include <ccl/types/operations.hpp>

CCL_ANY_SPACE_BEGIN

namespace ccl {

/// NVLink multicast: NVSwitches add the ranks' data and spread results. Not run on hardware. It
/// needs the multicast memory of `NvlsTransport`, which emulates it between CPU ranks.
/// - AllReduce: each head owns a slice. It loads the sum of all copies and stores it to all.
/// - ReduceScatter: each rank loads the sum of its share.
/// - AllGather, Broadcast: each rank, or the root, stores its data to all ranks at once.
/// - Reduce: the root loads the sum of all ranks.
///
/// Buffers in windows are reduced and stored where they are: see `binds_windows`.
struct Nvls {
  static constexpr const char* name = "NVLS";
  static constexpr bool reorders = true;  ///< switches add in an order of their own
  static constexpr bool multicasts = true;
  static constexpr bool stores_plainly = true;  ///< counts of launches instead of flags in packets
  using RankCounts = AnyRankCount;
  template <class Op>
  static constexpr bool supports =
      is_one_of<Op, AllReduce, AllGather, ReduceScatter, Broadcast, Reduce>;
  /// Operations that reduce straight from send buffers, and store straight into receive buffers, if
  /// those of all ranks lie at the same place of a window. Others copy them.
  template <class Op>
  static constexpr bool binds_windows = is_one_of<Op, AllReduce, AllGather, ReduceScatter>;
  /// Reductions of switches, in their own accumulate type.
  template <class F, class T, class Acc>
  static constexpr bool supports_elements =
      detail::SwitchOp<F, T>::possible && is_one_of<Acc, void, accumulate_t<T>>;
  /// Estimates: a copy of a share comes back to the rank that stores it.
  template <class Op>
  static constexpr CostTerms cost_terms(int ranks) {
    if (is_one_of<Op, AllReduce>) return {2, 1 + 1.0 / ranks};
    return {is_one_of<Op, Broadcast, Reduce> ? 2.0 : 1.0, 1};
  }
  template <class Op>
  static constexpr SumOrder order = SumOrder::varies;

  template <class Prims>
  CCL_HD static constexpr void run(AllReduce, Prims& prims) {
    const auto tiles = prims.tiles();
    const bool loads = prims.loads_windows(), stores = prims.stores_windows();
    if (!loads) {
      lay_out_all(prims);
    } else if (!stores) {
      prims.arrive(Prims::laid_out);  // has taken the part of two before
    }
    if (const int own = prims.own_share(); own >= 0) {
      if (!(loads && stores) && !prims.await_all(Prims::laid_out)) return;
      for (Index t = tiles.first; t < tiles.last; t += tiles.step) {
        prims.spread(own, t, prims.reduced(own, t));
      }
      prims.arrive(Prims::spread_out);
    }
    if (prims.await_heads(Prims::spread_out) && !stores) take_all(prims);
  }

  template <class Prims>
  CCL_HD static constexpr void run(ReduceScatter, Prims& prims) {
    const auto tiles = prims.tiles();
    const bool copies = !prims.loads_windows();
    if (copies) {
      lay_out_all(prims);
      if (!prims.await_all(Prims::laid_out)) return;
    }
    for (Index t = tiles.first; t < tiles.last; t += tiles.step) {
      prims.store(0, t, prims.reduced(prims.own_share(), t));
    }
    if (copies) return;
    // The program may write its send buffer when the call has ended.
    prims.arrive(Prims::spread_out);
    (void)prims.await_all(Prims::spread_out);
  }

  template <class Prims>
  CCL_HD static constexpr void run(AllGather, Prims& prims) {
    const auto tiles = prims.tiles();
    for (Index t = tiles.first; t < tiles.last; t += tiles.step) {
      prims.spread(prims.own_share(), t, prims.load(0, t));
    }
    prims.arrive(Prims::spread_out);
    if (prims.await_all(Prims::spread_out) && !prims.stores_windows()) take_all(prims);
  }

  template <class Prims>
  CCL_HD static constexpr void run(Broadcast, Prims& prims) {
    const auto tiles = prims.tiles();
    prims.arrive(Prims::begun);
    if (prims.rank() == prims.root()) {
      if (!prims.await_step_of_all()) return;
      for (Index t = tiles.first; t < tiles.last; t += tiles.step) {
        prims.spread(0, t, prims.load(0, t));
      }
      prims.arrive(Prims::spread_out);
    }
    if (prims.await_one(Prims::spread_out, prims.root())) take_all(prims);
  }

  template <class Prims>
  CCL_HD static constexpr void run(Reduce, Prims& prims) {
    const auto tiles = prims.tiles();
    prims.arrive(Prims::begun);
    // Each earlier launch may have had another root, which reads from this rank.
    if (!prims.await_step_of_all()) return;
    lay_out_all(prims);
    if (prims.rank() != prims.root() || !prims.await_all(Prims::laid_out)) return;
    for (Index t = tiles.first; t < tiles.last; t += tiles.step) {
      prims.store(0, t, prims.reduced(0, t));
    }
  }

 protected:
  template <class Prims>
  CCL_HD static constexpr void lay_out_all(Prims& prims) {
    const auto tiles = prims.tiles();
    for (int s = 0; s < prims.shares(); ++s) {
      for (Index t = tiles.first; t < tiles.last; t += tiles.step) prims.lay_out(s, t);
    }
    prims.arrive(Prims::laid_out);
  }
  template <class Prims>
  CCL_HD static constexpr void take_all(Prims& prims) {
    const auto tiles = prims.tiles();
    for (int s = 0; s < prims.shares(); ++s) {
      for (Index t = tiles.first; t < tiles.last; t += tiles.step) prims.take(s, t);
    }
  }
};

namespace detail {
/// The halves of an all-reduce by `Nvls`, between which heads may reduce over hosts.
/// - ReduceScatter: each head loads the sum of its share. There is a share for each head.
/// - AllGather: each head stores its share to all ranks at once.
///
/// Some ranks wait for no other's data, so all say how far they are.
struct NvlsHeads : Nvls {
  static constexpr const char* name = "NVLSHeads";
  static constexpr bool heads_own_shares = true;
  template <class Op>
  static constexpr bool binds_windows = false;
  template <class Op>
  static constexpr bool supports = is_one_of<Op, ReduceScatter, AllGather>;

  template <class Prims>
  CCL_HD static constexpr void run(ReduceScatter, Prims& prims) {
    const auto tiles = prims.tiles();
    const int own = prims.own_share();
    prims.arrive(Prims::begun);
    if (!prims.await_step_of_heads()) return;
    lay_out_all(prims);
    if (own < 0 || !prims.await_all(Prims::laid_out)) return;
    for (Index t = tiles.first; t < tiles.last; t += tiles.step) {
      prims.store(0, t, prims.reduced(own, t));
    }
  }

  template <class Prims>
  CCL_HD static constexpr void run(AllGather, Prims& prims) {
    const auto tiles = prims.tiles();
    prims.arrive(Prims::begun);
    if (const int own = prims.own_share(); own >= 0) {
      if (!prims.await_step_of_all()) return;
      for (Index t = tiles.first; t < tiles.last; t += tiles.step) {
        prims.spread(own, t, prims.load(0, t));
      }
      prims.arrive(Prims::spread_out);
    }
    if (prims.await_heads(Prims::spread_out)) take_all(prims);
  }
};
}  // namespace detail

}  // namespace ccl

CCL_ANY_SPACE_END
