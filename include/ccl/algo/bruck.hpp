#pragma once

#include <ccl/algo/ops.hpp>
#include <ccl/cost.hpp>
#include <ccl/types.hpp>

namespace ccl {

/// Everyone's share in ceil(log2 R) hops, at every rank count: after the round of distance d a rank
/// holds the shares of the 2d ranks from itself on, and hands them to the rank 2d places before it.
/// Each share crosses as often as in the ring, in fewer and larger messages, to farther ranks: for
/// small shares. Bruck, Ho, Kipnis, Upfal, Weathersby 1997, without their rotation.
struct Bruck {
  static constexpr const char* name = "Bruck";
  static constexpr bool reorders = false;
  static constexpr bool root_moves_wires = false;
  /// Into one rank, at most: what the memory plan reckons with.
  static constexpr int most_wires(int ranks) {
    int rounds = 0;
    for (int held = 1; held < ranks; held *= 2) ++rounds;
    return rounds;
  }
  static constexpr int wires = 2;  // that one channel of a rank works on at once
  template <class Op>
  static constexpr bool supports = detail::one_of<Op, AllGather>;
  template <class Op>
  static constexpr Effort effort(int ranks) {
    return {double(most_wires(ranks)), (ranks - 1.0) / ranks};
  }

  template <class Seats>
  static constexpr void peers(Seats& seats) {
    const int rank = seats.rank(), ranks = seats.ranks();
    for (int held = 1; held < ranks; held *= 2) {
      seats.from((rank + held) % ranks);
      seats.to((rank + ranks - held) % ranks);
    }
  }

  template <class Context>
  CCL_HD static constexpr void run(AllGather, Context& context) {
    const int rank = context.rank(), ranks = context.ranks();
    for (auto chunks = context.chunks(ranks); chunks.next();) {
      for (int held = 1; held < ranks; held *= 2) {
        const int from = (rank + held) % ranks, to = (rank + ranks - held) % ranks;
        const int shares = held < ranks - held ? held : ranks - held;
        auto prims = context.template prims<1, 1>({from}, {to});
        prims.lend();
        if (held > 1) prims.own_is_output();
        // All ranks send before they receive: no more at once than a wire holds.
        const int window = context.window();
        for (int first = 0; first < shares; first += window) {
          const int end = first + window < shares ? first + window : shares;
          for (int j = first; j < end; ++j) {
            const auto mine = chunks.share((rank + j) % ranks);
            if (held == 1) {
              prims.copy_send(mine);
            } else {
              prims.send({mine.out, mine.out, mine.count});
            }
          }
          for (int j = first; j < end; ++j) prims.recv(chunks.share((from + j) % ranks));
        }
      }
    }
  }
};

}  // namespace ccl
