#pragma once

#include <ccl/types/operations.hpp>
#include <ccl/types/macros.hpp>
#include <ccl/algo/cost.hpp>
#include <ccl/algo/rank_counts.hpp>

namespace ccl {

/// Everybody stores what it has straight into its peers' buffers, where these are mapped, and else
/// through slots in their scratch. One hop; every byte crosses the wire once. For messages that are
/// long enough to pay for a release: from about a megabyte on.
struct Direct {
  static constexpr const char* name = "Direct";
  static constexpr bool reorders = false;
  static constexpr bool stores_plainly = true;  // instead of packets that carry flags
  using RankCounts = AnyRankCount;
  template <class Op>
  static constexpr bool exchanges = true;
  template <class Op>
  static constexpr bool supports =
      is_one_of<Op, AllGather, AllToAll, AllToAllV, Gather, Scatter, SendRecv>;

  template <class Op>
  static constexpr CostTerms cost_terms(int ranks) {
    // Stores to several peers take longer than to one (bulk_bench: 341 GB/s, 366 to one).
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
