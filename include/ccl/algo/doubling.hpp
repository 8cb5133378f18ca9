#pragma once

#include <ccl/algo/ops.hpp>
#include <ccl/cost.hpp>
#include <ccl/reduce_op.hpp>
#include <ccl/types.hpp>

namespace ccl {

/// Recursive doubling: each rank exchanges all it has with the rank whose place in the ring differs
/// in one bit, bit by bit, neighbours first. log2(R) hops of the whole message, so it is for small
/// ones; ranks beyond the largest power of two hand their data to a partner first and get the
/// result last. Two ranks add the same two values in either order: the same bits everywhere if the
/// functor gives them for (a, b) and (b, a) (of Min and Max, all but the sign of a zero).
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
    const auto at = seats.ring();
    const int place = at.place, paired = power_of_two(at.ranks);
    const auto both = [&](int other) {
      seats.from(at.rank_at(other));
      seats.to(at.rank_at(other));
    };
    if (place >= paired) return both(place - paired);
    if (place + paired < at.ranks) both(place + paired);
    for (int bit = 1; bit < paired; bit <<= 1) both(place ^ bit);
  }

  template <class Context>
  CCL_HD static constexpr void run(AllReduce, Context& context) {
    const auto at = context.ring();
    const int place = at.place, paired = power_of_two(at.ranks);
    const int partner = place + paired < at.ranks ? at.rank_at(place + paired) : -1;
    for (auto chunks = context.chunks(1); chunks.next();) {
      const auto all = chunks.all();
      if (place >= paired) {
        const int inner = at.rank_at(place - paired);
        auto outer = context.template prims<1, 1>({inner}, {inner});
        outer.send(all);
        outer.recv(all);
        continue;
      }
      if (partner >= 0) {
        auto first = context.template prims<1, 1>({partner}, {at.rank_at(place ^ 1)});
        first.recv_reduce_copy_send(all);
      } else {
        const int neighbour = at.rank_at(place ^ 1);
        auto first = context.template prims<1, 1>({neighbour}, {neighbour});
        first.send(all);
      }
      for (int bit = 1; bit < paired; bit <<= 1) {
        const int other = at.rank_at(place ^ bit);
        const int next = bit << 1 < paired ? at.rank_at(place ^ bit << 1) : partner;
        auto step = context.template prims<1, 1>({other}, {next >= 0 ? next : other});
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
