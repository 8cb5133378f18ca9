#pragma once

#include <ccl/algo/cost.hpp>
#include <ccl/types/macros.hpp>
#include <ccl/types/operations.hpp>
#include <ccl/types/word.hpp>

CCL_ANY_SPACE_BEGIN

namespace ccl {

/// ReduceScatter for functors that are associative and not commutative. A chain runs from the last
/// rank to rank 0. Each rank adds its own value before the received one, so every share is 0 + (1 +
/// (2 + ...)). Rank 0 sends each result to its rank.
///
/// It moves as many bytes as `Ring` in twice as many hops, with shares that follow each other. It
/// ignores the topology: the fewest host crossings need consecutive ranks on each host.
struct OrderedChain {
  using Validated = OrderedChain;  // tests validate the algorithm: compositions need no dry run
  static constexpr const char* name = "OrderedChain";
  static constexpr bool reorders = false;
  static constexpr bool root_moves_wires = false;
  /// Returns the maximum number of wires into one rank. The memory plan assumes it.
  static constexpr int max_wires(int) { return 2; }
  static constexpr int wires = 3;  ///< wires of a rank that one channel uses at once
  template <class Op>
  static constexpr bool supports = is_one_of<Op, ReduceScatter>;
  template <class Op>
  static constexpr CostTerms cost_terms(int ranks) {
    return {2.0 * (ranks - 1), 1};
  }
  static constexpr double inter_node_fraction(int ranks, int hosts) {
    return double(hosts) / ranks;
  }
  template <class Op>
  static constexpr SumOrder order = SumOrder::ordered_chain;

  template <class Positions>
  static constexpr void peers(Positions& positions) {
    const int rank = positions.rank(), ranks = positions.ranks();
    if (rank + 1 < ranks) positions.from(rank + 1);
    if (rank > 0) {
      positions.to(rank - 1);
      positions.from(0);
      return;
    }
    for (int other = 1; other < ranks; ++other) positions.to(other);
  }

  template <class Context>
  CCL_HD static constexpr void run(ReduceScatter, Context& context) {
    const int rank = context.rank(), ranks = context.ranks();
    const int behind = rank + 1 < ranks ? rank + 1 : -1;
    auto ahead = context.chunks(ranks);
    if (rank == 0) {
      while (ahead.next()) {
        for (int s = 0; s < ranks; ++s) {
          auto turn = context.template prims<1, 1>({behind}, {s == 0 ? -1 : s});
          if (s == 0) {
            turn.recv_reduce_copy(ahead.share(s));
          } else {
            turn.recv_reduce_finish_send(ahead.share(s));
          }
        }
      }
      return;
    }
    auto down = context.template prims<1, 1>({behind}, {rank - 1});
    auto whole = context.template prims<1, 1>({0}, {-1});
    auto late = ahead;
    // At most the shares that the wire from rank 0 holds. Rank 0 then never waits for a rank that
    // waits for it.
    const int most = context.window();
    for (int under_way = 0;;) {
      if (under_way < most && ahead.next()) {
        for (int s = 0; s < ranks; ++s) {
          if (behind < 0) {
            down.send(ahead.share(s));
          } else {
            down.recv_reduce_send(ahead.share(s));
          }
        }
        ++under_way;
        continue;
      }
      if (!late.next()) break;
      whole.recv(late.share(rank));
      --under_way;
    }
  }
};

}  // namespace ccl

CCL_ANY_SPACE_END
