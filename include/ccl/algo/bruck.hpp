#pragma once

#include <ccl/algo/cost.hpp>
#include <ccl/types/macros.hpp>
#include <ccl/types/operations.hpp>
#include <ccl/types/word.hpp>

CCL_ANY_SPACE_BEGIN

namespace ccl {

/// AllGather in ceil(log2 R) hops at every rank count (Bruck, Ho, Kipnis, Upfal, Weathersby 1997,
/// without their rotation). After the round of distance d a rank holds the shares of the 2d ranks
/// from itself on. It then sends them to the rank 2d places before it in the ring.
///
/// Each share crosses as often as in `Ring`, in fewer and larger messages and to farther ranks, so
/// it suits small shares. The first rounds stay on a host, but most shares cross in the last round
/// (see `Pat`).
struct Bruck {
  using Validated = Bruck;  // tests validate the algorithm: compositions need no dry run
  static constexpr const char* name = "Bruck";
  static constexpr bool reorders = false;
  static constexpr bool root_moves_wires = false;
  /// Returns the maximum number of wires into one rank. The memory plan assumes it.
  static constexpr int max_wires(int ranks) {
    int rounds = 0;
    for (int held = 1; held < ranks; held *= 2) ++rounds;
    return rounds;
  }
  static constexpr int wires = 2;  ///< wires of a rank that one channel uses at once
  /// True: peers may write parts to their places as soon as a call has begun. A rank reads only its
  /// own share there, and shares that have arrived.
  static constexpr bool lands_ahead = true;
  template <class Op>
  static constexpr bool supports = is_one_of<Op, AllGather>;
  template <class Op>
  static constexpr CostTerms cost_terms(int ranks) {
    return {double(max_wires(ranks)), bursts * (ranks - 1.0) / ranks};
  }

  /// Returns the inter-node volume. All ranks of a host send shares at once. In rounds of a
  /// distance d below the ranks of a host, d of them send d shares to another host; in later rounds
  /// all of them send all their shares.
  template <class Op>
  static constexpr double inter_node_volume(int ranks, int hosts) {
    const double locals = double(ranks) / hosts;
    return bursts * (locals * (ranks - locals) + (locals * locals - 1) / 3) / ranks;
  }

  template <class Positions>
  static constexpr void peers(Positions& positions) {
    const auto at = positions.ring();
    for (int held = 1; held < at.ranks; held *= 2) {
      positions.from(at.ahead(held));
      positions.to(at.behind(held));
    }
  }

  template <class Context>
  CCL_HD static constexpr void run(AllGather, Context& context) {
    const auto at = context.ring();
    const int ranks = at.ranks;
    for (auto chunks = context.chunks(ranks); chunks.next();) {
      for (int held = 1; held < ranks; held *= 2) {
        const int from = at.ahead(held), to = at.behind(held);
        const int shares = held < ranks - held ? held : ranks - held;
        auto prims = context.template prims<1, 1>({from}, {to});
        prims.lend();
        if (held > 1) prims.own_is_output();
        // All ranks send before they receive, so they send at most the shares that a wire holds.
        const int window = context.window();
        for (int first = 0; first < shares; first += window) {
          const int end = first + window < shares ? first + window : shares;
          for (int j = first; j < end; ++j) {
            const auto mine = chunks.share(at.ahead(j));
            if (held == 1) {
              prims.copy_send(mine);
            } else {
              prims.send({mine.out, mine.out, mine.count});
            }
          }
          for (int j = first; j < end; ++j) prims.recv(chunks.share(at.ahead(held + j)));
        }
      }
    }
  }

 private:
  // Measured cost of rounds that all begin at once, relative to a ring.
  static constexpr double bursts = 1.05;
};

}  // namespace ccl

CCL_ANY_SPACE_END
