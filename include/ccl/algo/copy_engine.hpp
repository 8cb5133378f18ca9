#pragma once

#include <ccl/algo/cost.hpp>
#include <ccl/algo/rank_counts.hpp>
#include <ccl/element/reduce_op.hpp>
#include <ccl/types/macros.hpp>
#include <ccl/types/operations.hpp>

namespace ccl {

// Policies for the signals between ranks that use copy engines: data has arrived, or may be sent.

/// Signals by a kernel of one warp, which obeys deadlines and aborts like any other kernel.
struct FlagKernels {
  static constexpr bool by_stream = false;
};
/// Signals by writes and waits of the stream, so nothing runs on a multiprocessor. Each step costs
/// about 10 us more. A thread of the host watches deadlines and aborts, and releases the streams.
struct StreamFlags {
  static constexpr bool by_stream = true;
};

// Policies for the memory from which peers copy.

/// Copies through windows if the buffers lie in windows. Otherwise each chunk is staged in scratch
/// while the previous chunk is on the wire.
struct ThroughScratch {
  static constexpr bool stages = true;
};
/// Copies through windows only; needs no scratch.
struct InWindows {
  static constexpr bool stages = false;
};

/// Moves data by the GPUs' copy engines, in permutations. In every step each GPU reads from one
/// peer or writes to one, and no two GPUs use the same peer. Multiprocessors at most signal peers
/// (one warp), reduce, and stage the data that peers read.
///
/// It suits the largest messages: a copy engine fills NVLink better than multiprocessors do, and
/// each copy costs 10 us to start.
///
/// AllGather, AllToAll and a SendRecv of one message each way write directly into the peers'
/// buffers if `recv` is part of a `Window`. The caller must then pass `recv` at the same window
/// offset on all ranks, and no message may be empty. All other calls go through scratch, from any
/// buffers.
template <class Sync = FlagKernels, class Where = ThroughScratch>
struct CopyEngineBy {
  static constexpr const char* name = Sync::by_stream ? "ZeroSmCopies"
                                      : Where::stages ? "CopyEngine"
                                                      : "WindowCopies";
  static constexpr bool reorders = false;
  static constexpr bool copies = true;
  static constexpr bool by_stream = Sync::by_stream;
  static constexpr bool stages = Where::stages;
  static_assert(!stages || !by_stream, "ccl: staging needs kernels; give StreamFlags InWindows");
  using RankCounts = AnyRankCountUpTo<max_unrolled_ranks>;
  template <class Op>
  static constexpr bool in_windows = is_one_of<Op, AllGather, AllToAll, SendRecv>;
  template <class Op>
  static constexpr bool exchanges =
      in_windows<Op> || (stages && is_one_of<Op, AllToAllV, Gather, Scatter>);
  template <class Op>
  static constexpr bool supports =
      exchanges<Op> || (stages && is_one_of<Op, AllReduce, ReduceScatter>);
  /// True if `F` leaves the data as it is: a rank cannot scale its own data on the way.
  template <class F>
  static constexpr bool supports_reduction = !cuda::std::is_same_v<F, PreMulSum>;
  template <class Op>
  static constexpr SumOrder order = SumOrder::by_rank;

  template <class Op>
  static constexpr CostTerms cost_terms(int ranks) {
    const double others = (ranks - 1.0) / ranks;
    if (is_one_of<Op, AllReduce>) return {2.0 * (ranks - 1), 2 * others};
    if (is_one_of<Op, SendRecv>) return {1, 1};
    return {ranks - 1.0, others};
  }
};

using CopyEngine = CopyEngineBy<>;
using WindowCopies = CopyEngineBy<FlagKernels, InWindows>;
using ZeroSmCopies = CopyEngineBy<StreamFlags, InWindows>;

}  // namespace ccl
