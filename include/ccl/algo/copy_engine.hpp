#pragma once

#include <ccl/algo/ops.hpp>
#include <ccl/config.hpp>
#include <ccl/cost.hpp>
#include <ccl/peer_view.hpp>
#include <ccl/reduce_op.hpp>

namespace ccl {

/// The GPUs' copy engines move the data, in permutations: in every step each GPU reads from one
/// peer, or writes to one, and no two to the same. Multiprocessors only tell peers when (a warp),
/// reduce, and stage what the peers read. For the largest messages: a copy engine fills NVLink
/// better than multiprocessors do, and costs 10 us and more to begin with.
///
/// Buffers of any kind: what peers read is staged through this rank's scratch, chunk by chunk,
/// while the chunk before is on the wire. AllGather, AllToAll and a SendRecv of one message each
/// way go straight into the peers' buffers instead, where `recv` is part of a `Window`: then it is
/// on all ranks, at the same offset in that window.
struct CopyEngine {
  static constexpr const char* name = "CopyEngine";
  static constexpr bool reorders = false;
  static constexpr bool copies = true;
  using RankCounts = AnyRankCount;
  template <class Op>
  static constexpr bool exchanges =
      detail::one_of<Op, AllGather, AllToAll, AllToAllV, Gather, Scatter, SendRecv>;
  template <class Op>
  static constexpr bool supports = exchanges<Op> || detail::one_of<Op, AllReduce, ReduceScatter>;
  /// Data travels as it is, so that no rank can scale its own on the way.
  template <class F>
  static constexpr bool takes = !cuda::std::is_same_v<F, PreMulSum>;
  template <class Op>
  static constexpr SumOrder order = SumOrder::by_rank;

  template <class Op>
  static constexpr Effort effort(int ranks) {
    const double others = (ranks - 1.0) / ranks;
    if (detail::one_of<Op, AllReduce>) return {2, 2 * others};
    return {1, detail::one_of<Op, SendRecv> ? 1 : others};
  }
};

}  // namespace ccl
