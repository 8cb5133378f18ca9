#pragma once

#include <ccl/algo/ops.hpp>
#include <ccl/cost.hpp>
#include <ccl/reduce_op.hpp>
#include <ccl/types.hpp>

namespace ccl {

/// Recursive doubling: each rank exchanges all it has with the rank that differs in one bit, bit by
/// bit. log2(R) hops of the whole message, so it is for small ones; ranks beyond the largest power
/// of two hand their data to a partner first and get the result last. Two ranks add the same two
/// values in either order: the same bits everywhere if the functor gives them for (a, b) and (b, a)
/// (of Min and Max, all but the sign of a zero).
struct Doubling {
  static constexpr const char* name = "Doubling";
  static constexpr bool reorders = true;
  static constexpr bool root_moves_wires = false;
  /// Into one rank, at most: what the memory plan reckons with.
  static constexpr int most_wires(int ranks) { return ranks - 1; }
  static constexpr int wires = 2;  // that one channel of a rank works on at once
  template <class Op>
  static constexpr bool supports = detail::one_of<Op, AllReduce>;
  template <class Op>
  static constexpr Effort effort(int ranks) {
    double rounds = 0;
    for (int paired = power_of_two(ranks); paired > 1; paired /= 2) ++rounds;
    const double more = power_of_two(ranks) == ranks ? 0 : 2;
    return {rounds + more, 1.6 * (rounds + more / 2)};  // each rank also adds up all of it
  }
  template <class Op>
  static constexpr SumOrder order = SumOrder::halves;
  /// Partial results become a rank's own data, so there is no place for a prologue or an epilogue.
  template <class F>
  static constexpr bool takes = !detail::one_of<F, Avg, PreMulSum>;

  template <class Seats>
  static constexpr void peers(Seats& seats) {
    const int rank = seats.rank(), ranks = seats.ranks(), paired = power_of_two(ranks);
    const auto both = [&seats](int peer) {
      seats.from(peer);
      seats.to(peer);
    };
    if (rank >= paired) return both(rank - paired);
    if (rank + paired < ranks) both(rank + paired);
    for (int bit = 1; bit < paired; bit <<= 1) both(rank ^ bit);
  }

  template <class Context>
  CCL_HD static constexpr void run(AllReduce, Context& context) {
    const int rank = context.rank(), ranks = context.ranks(), paired = power_of_two(ranks);
    const int partner = rank + paired < ranks ? rank + paired : -1;
    for (auto chunks = context.chunks(1); chunks.next();) {
      const auto all = chunks.all();
      if (rank >= paired) {
        auto outer = context.template prims<1, 1>({rank - paired}, {rank - paired});
        outer.send(all);
        outer.recv(all);
        continue;
      }
      if (partner >= 0) {
        auto first = context.template prims<1, 1>({partner}, {rank ^ 1});
        first.recv_reduce_copy_send(all);
      } else {
        auto first = context.template prims<1, 1>({rank ^ 1}, {rank ^ 1});
        first.send(all);
      }
      for (int bit = 1; bit < paired; bit <<= 1) {
        const int next = bit << 1 < paired ? rank ^ bit << 1 : partner;
        auto step = context.template prims<1, 1>({rank ^ bit}, {next >= 0 ? next : rank ^ bit});
        if (bit > 1 || partner >= 0) step.own_is_output();
        if (next >= 0) {
          step.recv_reduce_copy_send(all);
        } else {
          step.recv_reduce_copy(all);
        }
      }
    }
  }

 private:
  CCL_HD static constexpr int power_of_two(int ranks) {
    int paired = 1;
    while (paired * 2 <= ranks) paired *= 2;
    return paired;
  }
};

}  // namespace ccl
