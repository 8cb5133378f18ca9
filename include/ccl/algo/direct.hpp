#pragma once

#include <ccl/algo/cost.hpp>
#include <ccl/algo/rank_counts.hpp>
#include <ccl/element/reduce_op.hpp>
#include <ccl/types/macros.hpp>
#include <ccl/types/operations.hpp>

CCL_ANY_SPACE_BEGIN

namespace ccl {

/// Each rank stores its data directly into its peers' buffers if they are mapped, else through
/// slots in their scratch. One hop; every byte crosses the wire once. It suits messages that
/// outweigh the cost of a release: from about 1 MiB on.
///
/// AllReduce, ReduceScatter, Reduce: each rank reads one share of its peers' buffers and adds in
/// rank order. In an AllReduce it stores the sums into all buffers. 2(R - 1)/R of the message
/// crosses the wires. In a Reduce of more than two ranks all but the root do that and store into
/// the root's buffer.
struct Direct {
  static constexpr const char* name = "Direct";
  static constexpr bool reorders = false;
  static constexpr bool stores_plainly = true;  ///< plain stores instead of packets with flags
  using RankCounts = AnyRankCount;
  template <class Op>
  static constexpr bool exchanges = !Op::reduces;
  template <class Op>
  static constexpr bool supports =
      is_one_of<Op, AllGather, AllReduce, AllToAll, AllToAllV, Broadcast, Gather, Reduce,
                ReduceScatter, Scatter, SendRecv>;
  /// A rank reads data that its peer has not scaled, so it cannot apply the peer's scalar.
  template <class F>
  static constexpr bool supports_reduction = !cuda::std::is_same_v<F, PreMulSum>;
  template <class Op>
  static constexpr SumOrder order = SumOrder::by_rank;

  template <class Op>
  static constexpr CostTerms cost_terms(int ranks) {
    // Loads are slower than stores: 256 MiB on 2 H200 take 410 us by loads of half of it, and 801
    // us if the sums go to both. The hops are fitted to the order of candidates. More than 4 ranks
    // were not measured.
    if (is_one_of<Op, AllReduce>) {
      return {2.2, (ranks > 4 ? 1.25 : ranks > 2 ? 1.15 : 1.08) * 2 * (ranks - 1) / ranks};
    }
    // On 4 H200, 16 MiB to a root take 72 us, and 1 GiB 3364; on 2 and 32 blocks, 8 MiB take 30.5
    // and 512 MiB 1458. Other numbers were not measured.
    if (is_one_of<Op, Reduce>) return ranks > 2 ? CostTerms{6.8, 1.14} : CostTerms{3, 1, 0, 1.8};
    if (is_one_of<Op, ReduceScatter>) return {1, 1.07 * (ranks - 1) / ranks};
    // Stores to several peers are slower than to one: 341 GB/s against 366 (bulk_bench).
    const double spread = ranks > 2 ? 1.07 : 1;
    // On 2 H200, 8 and 32 MiB take 35.7 and 105 us on 32 blocks, and 43.1 and 116 on 128.
    if (is_one_of<Op, Broadcast> && ranks == 2) return {8, 1, 0, 4};
    if (is_one_of<Op, Broadcast>) return {1, spread * (ranks - 1)};
    // On 4 H200, 64 MiB take 166 us on 32 blocks in clusters and 163 on 48; Ring takes 161 and 163.
    if (is_one_of<Op, AllGather> && ranks > 2) {
      return {1, spread * (ranks - 1) / ranks, 1.18 * (ranks - 1) / ranks};
    }
    // On 2 H200, 2, 8 and 16 MiB take 14.0, 31.2 and 53.7 us.
    if (is_one_of<Op, SendRecv>) return {ranks > 2 ? 1.0 : 2.0, 1};
    return {1, spread * (ranks - 1) / ranks};
  }

  template <class Exchange>
  CCL_HD static constexpr void run(Exchange& exchange) {
    exchange.open_registry();
    exchange.run();
  }
};

}  // namespace ccl

CCL_ANY_SPACE_END
