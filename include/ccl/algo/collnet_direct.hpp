#pragma once

#include <ccl/algo/chunks.hpp>
#include <ccl/algo/cost.hpp>
#include <ccl/algo/peers.hpp>
#include <ccl/element/network_op.hpp>
#include <ccl/types/macros.hpp>
#include <ccl/types/operations.hpp>
#include <ccl/types/position.hpp>

CCL_ANY_SPACE_BEGIN

namespace ccl {

/// Each head of a host owns a share of the message. All ranks of the host send their share to it,
/// it sends their sum to a network that adds up the hosts' sums, and the result goes to all ranks
/// of the host: one hop inside the host each way, and all NICs at once. Hosts have at most 8 ranks.
///
/// A NIC sends and receives its share once, whatever the number of hosts.
///
/// AllGather and ReduceScatter want a head for each rank. A message goes through the network in the
/// parts of one host after the other. Each head of that host sends its part, which the network
/// gives to all heads of its rail and they to their hosts; or gets the sum of its part.
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
  static constexpr bool supports = is_one_of<Op, AllReduce, AllGather, ReduceScatter>;
  /// True for the reductions that networks have. An average is divided by its number of ranks when
  /// it comes back.
  template <class F>
  static constexpr bool supports_reduction = detail::network_has<F>;
  /// Parts of hosts go one after the other, two at once if wires have 4 slots. The cost model takes
  /// each rank for a host, because it does not tell.
  template <class Op>
  static constexpr CostTerms cost_terms(int ranks) {
    return {is_one_of<Op, AllReduce> ? 2 : 2 + (ranks - 1) / 2.0, 1};
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

  template <class Context>
  CCL_HD static constexpr void run(AllReduce op, Context& context) {
    const auto at = context.host();
    run_batches(op, at, context, context.chunks(at.heads));
  }
  template <class Context>
  CCL_HD static constexpr void run(AllGather op, Context& context) {
    const auto at = context.host();
    run_batches(op, at, context, by_hosts(at, context.chunks(context.ranks())));
  }
  template <class Context>
  CCL_HD static constexpr void run(ReduceScatter op, Context& context) {
    const auto at = context.host();
    run_batches(op, at, context, by_hosts(at, context.chunks(context.ranks())));
  }

 private:
  static constexpr int most = max_host_ranks - 1;

  /// Parts of one host after the other in each round.
  template <class Cuts>
  struct ByHosts {
    Cuts cuts;
    int hosts, host;
    /// Returns false after the last part, however often it is called.
    CCL_HD constexpr bool next() {
      if (host + 1 < hosts) {
        ++host;
        return true;
      }
      if (!cuts.next()) return false;
      host = 0;
      return true;
    }
    /// Returns the part of a rank of the current host.
    CCL_HD constexpr Part of(int rank) const { return cuts.share(rank); }
  };
  template <class Cuts>
  CCL_HD static constexpr ByHosts<Cuts> by_hosts(const HostPosition& at, const Cuts& cuts) {
    return {cuts, at.hosts, at.hosts - 1};
  }

  /// Two heads use one wire each way for their summands and for results. All ranks send a batch of
  /// chunks ahead and receive a batch in one order, and two batches fit a wire, so that each finds
  /// what it waits for.
  template <class Op, class Context, class Cuts>
  CCL_HD static constexpr void run_batches(Op op, const HostPosition& at, Context& context,
                                           const Cuts& cuts) {
    const int window = context.window();
    const int batch = window > 1 ? window / 2 : 1, lead = window > 1 ? 2 : 1;
    auto ahead = cuts, behind = cuts;
    for (int under_way = 0;;) {
      if (under_way < lead && has_more(ahead)) {
        send_batch(op, at, context, ahead, batch);
        advance(ahead, batch);
        ++under_way;
      } else if (has_more(behind)) {
        recv_batch(op, at, context, behind, batch);
        advance(behind, batch);
        --under_way;
      } else {
        break;
      }
    }
  }

  CCL_HD static constexpr Peers<most> others(const HostPosition& at) {
    Peers<most> all{{-1, -1, -1, -1, -1, -1, -1}};
    for (int n = 0, next = 0; n < at.ranks && next < most; ++n) {
      if (n != at.place) all.rank[next++] = at.rank_at(n);
    }
    return all;
  }
  /// Sends a batch of all shares to their heads, and of this rank's share to the network.
  template <class Context, class Cuts>
  CCL_HD static constexpr void send_batch(AllReduce, const HostPosition& at, Context& context,
                                          const Cuts& cuts, int batch) {
    for (int n = 0; n < at.heads; ++n) {
      const int head = (at.place + n) % at.heads;  // ranks begin with different heads
      if (head == at.place) continue;
      auto to_head = context.template prims<1, 1>({-1}, {at.rank_at(head)});
      Cuts round = cuts;
      for (int b = 0; b < batch && round.next(); ++b) to_head.send(round.share(head));
    }
    if (!at.is_head()) return;
    auto up = context.template to_network<most>(others(at));
    Cuts round = cuts;
    for (int b = 0; b < batch && round.next(); ++b) {
      send_sum(at, up, round.share(at.place));
    }
  }
  /// Receives a batch of all shares, that of this rank from the network.
  template <class Context, class Cuts>
  CCL_HD static constexpr void recv_batch(AllReduce, const HostPosition& at, Context& context,
                                          const Cuts& cuts, int batch) {
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
  }

  /// Sends this rank's parts of a batch to the network, and takes part in those of other hosts.
  template <class Context, class Cuts>
  CCL_HD static constexpr void send_batch(AllGather, const HostPosition& at, Context& context,
                                          const Cuts& cuts, int batch) {
    auto up = context.template to_network<1>({-1});
    Cuts round = cuts;
    for (int b = 0; b < batch && round.next(); ++b) {
      const Part part = round.of(at.head_of(round.host, at.place));
      up.window(round.host);
      if (round.host == at.host) {
        up.send(part);
      } else {
        up.send_none(part);
      }
    }
  }
  /// Receives the parts of a batch: those of this rank's rail from the network, the others from
  /// their heads.
  template <class Context, class Cuts>
  CCL_HD static constexpr void recv_batch(AllGather, const HostPosition& at, Context& context,
                                          const Cuts& cuts, int batch) {
    {
      auto down = context.template from_network<most>(others(at));
      Cuts round = cuts;
      for (int b = 0; b < batch && round.next(); ++b) {
        const Part part = round.of(at.head_of(round.host, at.place));
        if (at.ranks > 1) {
          down.recv_copy_send(part);
        } else {
          down.recv(part);
        }
      }
    }
    for (int n = 1; n < at.ranks; ++n) {
      const int head = (at.place + n) % at.ranks;
      auto from_head = context.template prims<1, 1>({at.rank_at(head)}, {-1});
      Cuts round = cuts;
      for (int b = 0; b < batch && round.next(); ++b) {
        from_head.recv(round.of(at.head_of(round.host, head)));
      }
    }
  }

  /// Sends the summands of a batch to the heads of their rails, and the sums of this host to the
  /// network.
  template <class Context, class Cuts>
  CCL_HD static constexpr void send_batch(ReduceScatter, const HostPosition& at, Context& context,
                                          const Cuts& cuts, int batch) {
    for (int n = 1; n < at.ranks; ++n) {
      const int head = (at.place + n) % at.ranks;
      auto to_head = context.template prims<1, 1>({-1}, {at.rank_at(head)});
      Cuts round = cuts;
      for (int b = 0; b < batch && round.next(); ++b) {
        to_head.send(round.of(at.head_of(round.host, head)));
      }
    }
    auto up = context.template to_network<most>(others(at));
    Cuts round = cuts;
    for (int b = 0; b < batch && round.next(); ++b) {
      up.window(round.host);
      send_sum(at, up, round.of(at.head_of(round.host, at.place)));
    }
  }
  /// Receives this rank's sums of a batch.
  template <class Context, class Cuts>
  CCL_HD static constexpr void recv_batch(ReduceScatter, const HostPosition& at, Context& context,
                                          const Cuts& cuts, int batch) {
    auto down = context.template from_network<1>({-1});
    Cuts round = cuts;
    for (int b = 0; b < batch && round.next(); ++b) {
      if (round.host == at.host) down.recv_finish(round.of(at.rank()));
    }
  }

  template <class Up>
  CCL_HD static constexpr void send_sum(const HostPosition& at, Up& up, const Part& part) {
    if (at.ranks > 1) {
      up.recv_reduce_send(part);
    } else {
      up.send(part);
    }
  }
  template <class Cuts>
  CCL_HD static constexpr bool has_more(Cuts cuts) {
    return cuts.next();
  }
  template <class Cuts>
  CCL_HD static constexpr void advance(Cuts& cuts, int batch) {
    for (int b = 0; b < batch && cuts.next(); ++b) {
    }
  }
};

}  // namespace ccl

CCL_ANY_SPACE_END
