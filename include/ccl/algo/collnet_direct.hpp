#pragma once

#include <ccl/algo/cost.hpp>
#include <ccl/algo/peers.hpp>
#include <ccl/element/network_op.hpp>
#include <ccl/types/operations.hpp>
#include <ccl/types/position.hpp>

namespace ccl {

/// Each head of a host owns a share of the message. All ranks of the host send their share to it,
/// it sends their sum to a network that adds up the hosts' sums, and the result goes to all ranks
/// of the host: one hop inside the host each way, and all NICs at once. Hosts have at most 8 ranks.
///
/// A NIC sends and receives its share once, whatever the number of hosts.
struct CollNetDirect {
  using Validated = CollNetDirect;  // tests validate the algorithm: compositions need no dry run
  static constexpr const char* name = "CollNetDirect";
  static constexpr bool reorders = true;
  static constexpr bool root_moves_wires = false;
  static constexpr int max_host_ranks = 8;
  static constexpr int network_heads = max_host_ranks;  ///< heads of a host on one channel
  /// Returns the maximum number of wires into one rank. The memory plan assumes it.
  static constexpr int max_wires(int) { return max_host_ranks - 1; }
  /// Returns the hops inside a host of so many ranks, both ways. The cost model adds those to the
  /// network.
  static constexpr int host_hops(int ranks) { return ranks > 1 ? 2 : 0; }
  static constexpr int wires = max_host_ranks;  ///< wires of a rank that one channel uses at once
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
    for (int n = 0; n < at.ranks; ++n) {
      if (n == at.place || (n >= at.heads && !at.is_head())) continue;
      positions.from(at.rank_at(n));
      positions.to(at.rank_at(n));
    }
  }

  /// Two heads use one wire each way for their summands and for results. All ranks send a batch of
  /// chunks ahead and receive a batch in one order, and two batches fit a wire, so that each finds
  /// what it waits for.
  template <class Context>
  CCL_HD static constexpr void run(AllReduce, Context& context) {
    const auto at = context.host();
    const int window = context.window();
    const int batch = window > 1 ? window / 2 : 1, lead = window > 1 ? 2 : 1;
    auto ahead = context.chunks(at.heads), behind = ahead;
    for (int under_way = 0;;) {
      if (under_way < lead && send_batch(at, context, ahead, batch)) {
        ++under_way;
      } else if (recv_batch(at, context, behind, batch)) {
        --under_way;
      } else {
        break;
      }
    }
  }

 private:
  static constexpr int most = max_host_ranks - 1;

  CCL_HD static constexpr Peers<most> others(const HostPosition& at) {
    Peers<most> all{{-1, -1, -1, -1, -1, -1, -1}};
    for (int n = 0, next = 0; n < at.ranks && next < most; ++n) {
      if (n != at.place) all.rank[next++] = at.rank_at(n);
    }
    return all;
  }
  /// Sends a batch of all shares to their heads, and of this rank's share to the network. Returns
  /// false if nothing is left.
  template <class Context, class Cuts>
  CCL_HD static constexpr bool send_batch(const HostPosition& at, Context& context, Cuts& cuts,
                                          int batch) {
    if (Cuts first = cuts; !first.next()) return false;
    for (int n = 0; n < at.heads; ++n) {
      const int head = (at.place + n) % at.heads;  // ranks begin with different heads
      if (head == at.place) continue;
      auto to_head = context.template prims<1, 1>({-1}, {at.rank_at(head)});
      Cuts round = cuts;
      for (int b = 0; b < batch && round.next(); ++b) to_head.send(round.share(head));
    }
    if (at.is_head()) {
      auto up = context.template to_network<most>(others(at));
      Cuts round = cuts;
      for (int b = 0; b < batch && round.next(); ++b) {
        if (at.ranks > 1) {
          up.recv_reduce_send(round.share(at.place));
        } else {
          up.send(round.share(at.place));
        }
      }
    }
    advance(cuts, batch);
    return true;
  }
  /// Receives a batch of all shares, that of this rank from the network.
  template <class Context, class Cuts>
  CCL_HD static constexpr bool recv_batch(const HostPosition& at, Context& context, Cuts& cuts,
                                          int batch) {
    if (Cuts first = cuts; !first.next()) return false;
    if (at.is_head()) {
      auto down = context.template from_network<most>(others(at));
      Cuts round = cuts;
      for (int b = 0; b < batch && round.next(); ++b) {
        if (at.ranks > 1) {
          down.recv_finish_copy_send(round.share(at.place));
        } else {
          down.recv_finish(round.share(at.place));
        }
      }
    }
    for (int n = 0; n < at.heads; ++n) {
      const int head = (at.place + n) % at.heads;
      if (head == at.place) continue;
      auto from_head = context.template prims<1, 1>({at.rank_at(head)}, {-1});
      Cuts round = cuts;
      for (int b = 0; b < batch && round.next(); ++b) from_head.recv(round.share(head));
    }
    advance(cuts, batch);
    return true;
  }
  template <class Cuts>
  CCL_HD static constexpr void advance(Cuts& cuts, int batch) {
    for (int b = 0; b < batch && cuts.next(); ++b) {
    }
  }
};

}  // namespace ccl
