#pragma once

#include <ccl/algo/cost.hpp>
#include <ccl/algo/rank_counts.hpp>
#include <ccl/types/macros.hpp>
#include <ccl/types/operations.hpp>

namespace ccl {

/// Each rank stores its data directly into its peers' buffers if they are mapped, else through
/// slots in their scratch. One hop; every byte crosses the wire once. It suits messages that
/// outweigh the cost of a release: from about 1 MiB on.
struct Direct {
  static constexpr const char* name = "Direct";
  static constexpr bool reorders = false;
  static constexpr bool stores_plainly = true;  ///< plain stores instead of packets with flags
  using RankCounts = AnyRankCount;
  template <class Op>
  static constexpr bool exchanges = true;
  template <class Op>
  static constexpr bool supports =
      is_one_of<Op, AllGather, AllToAll, AllToAllV, Gather, Scatter, SendRecv>;

  template <class Op>
  static constexpr CostTerms cost_terms(int ranks) {
    // Stores to several peers are slower than to one: 341 GB/s against 366 (bulk_bench).
    const double spread = ranks > 2 ? 1.07 : 1;
    return {1, is_one_of<Op, SendRecv> ? 1 : spread * (ranks - 1) / ranks};
  }

  template <class Exchange>
  CCL_HD static constexpr void run(Exchange& exchange) {
    exchange.open_registry();
    exchange.run();
  }
};

}  // namespace ccl
