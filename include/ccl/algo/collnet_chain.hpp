#pragma once

#include <ccl/algo/cost.hpp>
#include <ccl/element/network_op.hpp>
#include <ccl/types/macros.hpp>
#include <ccl/types/operations.hpp>
#include <ccl/types/position.hpp>

CCL_ANY_SPACE_BEGIN

namespace ccl {

/// The ranks of a host reduce along a chain. Its first rank, the head, sends the sum of its host to
/// a network that adds up the hosts' sums, and the result goes back along the chain. Channels have
/// different heads, so that each NIC carries its part of the message.
///
/// A NIC sends and receives the message once, whatever the number of hosts.
struct CollNetChain {
  using Validated = CollNetChain;  // tests validate the algorithm: compositions need no dry run
  static constexpr const char* name = "CollNetChain";
  static constexpr bool reorders = true;
  static constexpr bool root_moves_wires = false;
  static constexpr int network_heads = 1;  ///< heads of a host on one channel
  /// Returns the maximum number of wires into one rank. The memory plan assumes it.
  static constexpr int max_wires(int) { return 2; }
  /// Returns the hops inside a host of so many ranks, both ways. The cost model adds those to the
  /// network.
  static constexpr int host_hops(int ranks) { return 2 * (ranks - 1); }
  static constexpr int wires = 4;  ///< wires of a rank that one channel uses at once
  template <class Op>
  static constexpr bool supports = is_one_of<Op, AllReduce>;
  /// True for the reductions that networks have. An average is divided by its number of ranks when
  /// it comes back.
  template <class F>
  static constexpr bool supports_reduction = detail::network_has<F>;
  template <class Op>
  static constexpr CostTerms cost_terms(int) {
    return {2, 1};
  }
  template <class Op>
  static constexpr SumOrder order = SumOrder::varies;

  template <class Positions>
  static constexpr void peers(Positions& positions) {
    const auto at = positions.host();
    for (const int neighbor : {at.prev(), at.next()}) {
      if (neighbor < 0) continue;
      positions.from(neighbor);
      positions.to(neighbor);
    }
  }

  /// Returns the chunks that a rank sends up before it receives the first from above: those that
  /// the network holds, and for each edge to the head two more, as in `Tree`.
  template <class Context>
  CCL_HD static constexpr int lead(const HostPosition& at, const Context& context) {
    return context.window() + 2 * at.place;
  }

  template <class Context>
  CCL_HD static constexpr void run(AllReduce, Context& context) {
    const auto at = context.host();
    if (at.is_head()) {
      auto up = context.template to_network<1>({at.next()});
      auto down = context.template from_network<1>({at.next()});
      run_both<true>(at, context, up, down);
    } else {
      auto up = context.template prims<1, 1>({at.next()}, {at.prev()});
      auto down = context.template prims<1, 1>({at.prev()}, {at.next()});
      run_both<false>(at, context, up, down);
    }
  }

 private:
  /// Both directions at once. `Finishes`: sums come from the network, and are whole.
  template <bool Finishes, class Context, class Up, class Down>
  CCL_HD static constexpr void run_both(const HostPosition& at, Context& context, Up& up,
                                        Down& down) {
    auto ahead = context.chunks(1), behind = ahead;
    const int most = lead(at, context);
    for (int under_way = 0;;) {
      if (under_way < most && ahead.next()) {
        if (at.is_last()) {
          up.send(ahead.all());
        } else {
          up.recv_reduce_send(ahead.all());
        }
        ++under_way;
        continue;
      }
      if (!behind.next()) break;
      if constexpr (Finishes) {
        if (at.is_last()) {
          down.recv_finish(behind.all());
        } else {
          down.recv_finish_copy_send(behind.all());
        }
      } else if (at.is_last()) {
        down.recv(behind.all());
      } else {
        down.recv_copy_send(behind.all());
      }
      --under_way;
    }
  }
};

}  // namespace ccl

CCL_ANY_SPACE_END
