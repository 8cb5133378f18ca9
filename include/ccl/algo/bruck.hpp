#pragma once

#include <ccl/types/operations.hpp>
#include <ccl/algo/cost.hpp>
#include <ccl/types/word.hpp>

namespace ccl {

/// Everyone's share in ceil(log2 R) hops, at every rank count: after the round of distance d a rank
/// holds the shares of the 2d ranks from itself on, and hands them to the rank 2d places before it
/// in the ring. The first rounds stay on a host; most shares cross in the last one, though (see
/// `Pat`).
/// Each share crosses as often as in the ring, in fewer and larger messages, to farther ranks: for
/// small shares. Bruck, Ho, Kipnis, Upfal, Weathersby 1997, without their rotation.
struct Bruck {
  using Validated = Bruck;  // tests prove it: compositions need no dry run
  static constexpr const char* name = "Bruck";
  static constexpr bool reorders = false;
  static constexpr bool root_moves_wires = false;
  /// Into one rank, at most: what the memory plan reckons with.
  static constexpr int max_wires(int ranks) {
    int rounds = 0;
    for (int held = 1; held < ranks; held *= 2) ++rounds;
    return rounds;
  }
  static constexpr int wires = 2;  // that one channel of a rank works on at once
  template <class Op>
  static constexpr bool supports = is_one_of<Op, AllGather>;
  template <class Op>
  static constexpr CostTerms cost_terms(int ranks) {
    return {double(max_wires(ranks)), bursts * (ranks - 1.0) / ranks};
  }

  /// All ranks of a host hand on shares at once: in rounds of a distance d below their number, d of
  /// them send d shares to another host, later all of them all.
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
        // All ranks send before they receive: no more at once than a wire holds.
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
  static constexpr double bursts = 1.05;  // what rounds lose that all begin at once, beside a ring
};

}  // namespace ccl
