#pragma once

#include <ccl/algo/cost.hpp>
#include <ccl/types/macros.hpp>
#include <ccl/types/operations.hpp>
#include <ccl/types/word.hpp>

CCL_ANY_SPACE_BEGIN

namespace ccl {

/// Each rank exchanges its messages with every other rank over wires of their own. It runs
/// AllToAll(V), Gather, Scatter, AllGather, Broadcast and groups of sends and receives. All
/// messages progress at once, slice by slice, so no order of calls at the peers can deadlock.
///
/// Peers are served in pairing order: a rank sends to the rank d places ahead in the ring and
/// receives from the rank d places behind. Peers of the same host come first.
struct Pairwise {
  using Validated = Pairwise;  // tests validate the algorithm: compositions need no dry run
  static constexpr const char* name = "Pairwise";
  static constexpr bool reorders = false;
  static constexpr bool root_moves_wires = false;
  static constexpr bool serves_pairs = true;
  /// true: several groups may share the peers of a channel, and each serves its own turns
  static constexpr bool serves_by_turns = true;
  /// Returns the maximum number of wires into one rank. The memory plan assumes it.
  static constexpr int max_wires(int ranks) { return ranks - 1; }
  static constexpr int wires = 2;  ///< wires of a rank that one channel uses at once
  template <class Op>
  static constexpr bool supports =
      is_one_of<Op, AllToAll, AllToAllV, Gather, Scatter, SendRecv, AllGather, Broadcast>;
  /// Returns the cost terms. Messages to many peers start one after another. A lone message has
  /// only the wires of one peer: SendRecv of 16 MiB on 4 H200 takes 142 us, and 57 us with Direct.
  /// The factor 1.7 of the others is the loss of AllToAll at 16 MiB against NCCL (ratios 0.66,
  /// 1.14).
  template <class Op>
  static constexpr CostTerms cost_terms(int ranks) {
    const double others = ranks - 1;
    // A lone message has the channels of one peer: 64 MiB at 238 GB/s on 2 H200, 120 GB/s on 4.
    if constexpr (is_one_of<Op, SendRecv>) return {1, others < 1.5 ? 1.5 : others};
    return {1 + 0.3 * (others - 1), is_one_of<Op, Broadcast> ? others : 1.7 * others / ranks};
  }

  /// Returns the inter-node volume. Messages between ranks of the same host do not cross.
  template <class Op>
  static constexpr double inter_node_volume(int ranks, int hosts) {
    if constexpr (!is_one_of<Op, AllToAll>) return cost_terms<Op>(ranks).volume;
    return 2.0 * (hosts - 1) / hosts;
  }

  template <class Positions>
  static constexpr void peers(Positions& positions) {
    for (int d = 1; d < positions.ranks(); ++d) {
      positions.from((positions.rank() + positions.ranks() - d) % positions.ranks());
      positions.to((positions.rank() + d) % positions.ranks());
    }
  }

  template <class Op, class Context>
    requires(!Op::reduces)
  CCL_HD static constexpr void run(Op, Context& context) {
    auto pairs = context.exchange();
    pairs.begin();
    pairs.copy_own();
    while (advance(pairs)) pairs.rest();
  }

  /// Offers every peer one slice each way. Returns false if nothing is left.
  template <class Exchange>
  CCL_HD static constexpr bool advance(Exchange& pairs) {
    bool left = false;
    for (int n = pairs.server(); n < pairs.visits(); n += pairs.servers()) {
      const bool more = pairs.visit(n);
      left = left || more;
    }
    return left;
  }

  /// Part of a round: messages to or from one peer.
  struct Visit {
    int peer;
    bool sends;
  };
  /// Returns the number of visits of a round.
  CCL_HD static constexpr int visits(int ranks) { return 2 * ranks - 2; }
  /// Returns the n-th visit of a round. Visit 2d - 2 sends to the rank d places ahead. The next
  /// receives from the rank d places behind.
  template <class Ring>
  CCL_HD static constexpr Visit visit_at(const Ring& ring, int n) {
    const int d = n / 2 + 1;
    return n % 2 == 0 ? Visit{ring.ahead(d), true} : Visit{ring.behind(d), false};
  }
};

}  // namespace ccl

CCL_ANY_SPACE_END
