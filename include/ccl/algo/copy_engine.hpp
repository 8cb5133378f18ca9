#pragma once

#include <ccl/types/operations.hpp>
#include <ccl/types/macros.hpp>
#include <ccl/algo/cost.hpp>
#include <ccl/algo/rank_counts.hpp>
#include <ccl/element/reduce_op.hpp>

namespace ccl {

// How ranks that use copy engines tell each other that data is there, or may come.

/// A kernel of one warp, which has deadlines and heeds an abort like any other.
struct FlagKernels {
  static constexpr bool by_stream = false;
};
/// Writes and waits of the stream itself: nothing runs on a multiprocessor. About 10 us dearer for
/// each step. A thread of the host watches deadlines and aborts, and lets the streams go on.
struct StreamFlags {
  static constexpr bool by_stream = true;
};

// Where peers find the data.

/// In windows where there are some; else it is staged, chunk by chunk, while the chunk before is on
/// the wire.
struct ThroughScratch {
  static constexpr bool stages = true;
};
/// In windows only: needs no scratch.
struct InWindows {
  static constexpr bool stages = false;
};

/// The GPUs' copy engines move the data, in permutations: in every step each GPU reads from one
/// peer, or writes to one, and no two to the same. Multiprocessors at most tell peers when (a
/// warp), reduce, and stage what peers read. For the largest messages: a copy engine fills NVLink
/// better than multiprocessors do, and costs 10 us for each copy to begin with.
///
/// AllGather, AllToAll and a SendRecv of one message each way go straight into the peers' buffers
/// where `recv` is part of a `Window`. Then it is so on all ranks, at the same offset of the
/// window, and no message is empty. Everything else goes through scratch, from buffers of any kind.
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
  using RankCounts = AnyRankCount;
  template <class Op>
  static constexpr bool in_windows = is_one_of<Op, AllGather, AllToAll, SendRecv>;
  template <class Op>
  static constexpr bool exchanges = in_windows<Op> ||
                                    (stages && is_one_of<Op, AllToAllV, Gather, Scatter>);
  template <class Op>
  static constexpr bool supports = exchanges<Op> ||
                                   (stages && is_one_of<Op, AllReduce, ReduceScatter>);
  /// Data travels as it is, so that no rank can scale its own on the way.
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
