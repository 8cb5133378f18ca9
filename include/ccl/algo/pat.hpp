#pragma once

#include <ccl/algo/cost.hpp>
#include <ccl/types/macros.hpp>
#include <ccl/types/operations.hpp>
#include <ccl/types/position.hpp>
#include <ccl/types/word.hpp>

CCL_ANY_SPACE_BEGIN

namespace ccl {

/// Parallel aggregated trees, one for each rank's share, all of one shape: about log2(R) hops at
/// every rank count. Each share crosses as often as in `Ring`. Half of a rank's messages go to its
/// neighbors in the ring, a quarter two places on, and so on. Ranks of a host are adjacent, so few
/// messages cross the network. A rank communicates with 2 log2(R) others.
///
/// A tree node is numbered by its distance from the tree's rank, so a rank is another node in each
/// tree. All ranks process their nodes in one order: level by level within blocks that the wires
/// can hold, then block by block. Memory therefore does not grow with the number of ranks, and
/// longer messages cost hops for each block. A share is added up in one shape on every rank.
///
/// Broadcast and Reduce use the tree of their root: as few hops as `Tree`, over the same wires for
/// every root.
struct Pat {
  using Validated = Pat;  // tests validate the algorithm: compositions need no dry run
  static constexpr const char* name = "Pat";
  static constexpr bool reorders = true;
  static constexpr bool root_moves_wires = false;
  /// Returns the maximum number of wires into one rank. The memory plan assumes it.
  static constexpr int max_wires(int ranks) {
    const int both_ways = 2 * levels(ranks);
    return both_ways < ranks - 1 ? both_ways : ranks - 1;
  }
  static constexpr int wires = 3;  ///< wires of a rank that one channel uses at once
  /// True: peers may write parts to their places as soon as a call has begun. A share arrives once.
  static constexpr bool lands_ahead = true;
  /// True: ranks send on without a wait for the receivers of the shares before, which may wait for
  /// them.
  static constexpr bool lends_to_end = true;
  template <class Op>
  static constexpr bool supports = is_one_of<Op, AllGather, ReduceScatter, Broadcast, Reduce>;
  template <class Op>
  static constexpr CostTerms cost_terms(int ranks) {
    if constexpr (is_one_of<Op, Broadcast, Reduce>) {
      // The second of two children waits a little. Not every rank has two.
      return {1.3 * levels(ranks), ranks > 2 ? 1.5 : 1.0};
    }
    // One step for each share, a few at once. Slots are copied, which a ring avoids.
    return {levels(ranks) + 0.2 * (ranks - 1), 1.2 * (ranks - 1.0) / ranks};
  }

  /// Returns the inter-node fraction of the hops; the near hops stay on a host.
  static constexpr double inter_node_fraction(int ranks, int hosts) {
    const double far = 1 + detail::doublings(hosts), all = detail::doublings(ranks);
    return far < all ? far / all : 1;
  }

  template <class Positions>
  static constexpr void peers(Positions& positions) {
    const auto at = positions.ring();
    // Edges are connected both ways, so that one plan of wires serves both operations.
    for (int node = 1; node < at.ranks; ++node) {
      const int up = detail::binary_tree(node, at.ranks).up;
      const int there = at.ahead((up - node + at.ranks) % at.ranks);
      const int back = at.ahead((node - up + at.ranks) % at.ranks);
      for (const int peer : {there, back}) {
        positions.to(peer);
        positions.from(peer);
      }
    }
  }

  /// Sends down all trees: the rank at place p is node n of the tree of the rank at place p - n.
  template <class Context>
  CCL_HD static constexpr void run(AllGather, Context& context) {
    const auto at = context.ring();
    for (auto chunks = context.chunks(at.ranks); chunks.next();) {
      // More short shares fit into a wire: all trees run at once, in as many hops as one tree has.
      const Nodes nodes{at.ranks, block_of(context.window(chunks.share(at.rank()).count))};
      for (int n = nodes.last(); n >= 0; n = nodes.before(n)) {
        const TreePosition position = detail::binary_tree(n, at.ranks);
        const auto share = chunks.share(at.behind(n));
        auto prims = context.template prims<1, 2>(
            {peer(at, n, position.up)},
            {peer(at, n, position.down[0]), peer(at, n, position.down[1])});
        prims.lend_on();
        if (n == 0) {
          prims.copy_send(share);
        } else if (position.is_leaf()) {
          prims.recv(share);
        } else {
          prims.recv_copy_send(share);
        }
      }
    }
  }

  /// Sends up all trees, in the opposite order.
  template <class Context>
  CCL_HD static constexpr void run(ReduceScatter, Context& context) {
    const auto at = context.ring();
    for (auto chunks = context.chunks(at.ranks); chunks.next();) {
      // More short shares fit into a wire: all trees run at once, in as many hops as one tree has.
      const Nodes nodes{at.ranks, block_of(context.window(chunks.share(at.rank()).count))};
      for (int n = nodes.first(); n >= 0; n = nodes.after(n)) {
        const TreePosition position = detail::binary_tree(n, at.ranks);
        const auto share = chunks.share(at.behind(n));
        auto prims = context.template prims<2, 1>(
            {peer(at, n, position.down[0]), peer(at, n, position.down[1])},
            {peer(at, n, position.up)});
        prims.lend_on();
        if (n == 0) {
          prims.recv_reduce_copy(share);
        } else if (position.is_leaf()) {
          prims.send(share);
        } else {
          prims.recv_reduce_send(share);
        }
      }
    }
  }

  /// Sends down the root's tree.
  template <class Context>
  CCL_HD static constexpr void run(Broadcast, Context& context) {
    const auto at = context.ring();
    const int n = at.distance_from(context.root());
    const TreePosition position = detail::binary_tree(n, at.ranks);
    auto prims = context.template prims<1, 2>(
        {peer(at, n, position.up)}, {peer(at, n, position.down[0]), peer(at, n, position.down[1])});
    prims.lend();
    for (auto chunks = context.chunks(1); chunks.next();) {
      if (n == 0) {
        prims.copy_send(chunks.all());
      } else if (position.is_leaf()) {
        prims.recv(chunks.all());
      } else {
        prims.recv_copy_send(chunks.all());
      }
    }
  }

  /// Sends up the root's tree.
  template <class Context>
  CCL_HD static constexpr void run(Reduce, Context& context) {
    const auto at = context.ring();
    const int n = at.distance_from(context.root());
    const TreePosition position = detail::binary_tree(n, at.ranks);
    auto prims = context.template prims<2, 1>(
        {peer(at, n, position.down[0]), peer(at, n, position.down[1])}, {peer(at, n, position.up)});
    prims.lend();
    for (auto chunks = context.chunks(1); chunks.next();) {
      if (n == 0) {
        prims.recv_reduce_copy(chunks.all());
      } else if (position.is_leaf()) {
        prims.send(chunks.all());
      } else {
        prims.recv_reduce_send(chunks.all());
      }
    }
  }

  /// Order in which a rank processes its nodes, from the leaves to the root. In a block of `block`
  /// nodes (a power of two), all nodes of one level precede those of the next. A node above the
  /// blocks follows the last block below it.
  struct Nodes {
    int ranks, block;

    CCL_HD constexpr int first() const { return into(0); }
    CCL_HD static constexpr int last() { return 0; }
    /// Returns the next node, or -1 after the last.
    CCL_HD constexpr int after(int n) const {
      if (n == 0) return -1;
      if (n % block == 0) return next_open(n - low(n), n + low(n));
      const int base = n - n % block;
      for (int level = low(n), at = n + 2 * level;; level *= 2, at = base + level) {
        if (level == block) return next_open(base, base + block);
        if (at < base + block && at < ranks) return at;
      }
    }
    /// Returns the previous node, or -1 before the first.
    CCL_HD constexpr int before(int n) const {
      const int base = n - n % block;
      if (n != base) {
        const int level = low(n);
        if (n - 2 * level > base) return n - 2 * level;
        if (level == 1) return ahead_of(base);
        return last_of(base, level / 2);
      }
      int half = n == 0 ? top() : low(n) / 2;
      while (half >= block && n + half >= ranks) half /= 2;
      if (half >= block) return n + half;
      if (block > 1 && n + 1 < ranks) {
        int level = block / 2;
        while (n + level >= ranks) level /= 2;
        return last_of(n, level);
      }
      return ahead_of(n);
    }

   private:
    CCL_HD static constexpr int low(int n) { return n & -n; }
    CCL_HD constexpr int top() const {
      int bit = 1;
      while (bit * 2 < ranks) bit *= 2;
      return bit;
    }
    /// Returns the first node of a block.
    CCL_HD constexpr int into(int base) const {
      for (;; base += block) {
        if (block > 1 && base + 1 < ranks) return base + 1;
        if (base + block >= ranks || low(base) == block) return base;
      }
    }
    /// Returns the next node after all nodes below `done` are processed, except `node` and its
    /// ancestors.
    CCL_HD constexpr int next_open(int node, int done) const {
      if (done >= ranks || (node != 0 && node + low(node) <= done)) return node;
      return into(done);
    }
    /// Returns the last node of a level of a block.
    CCL_HD constexpr int last_of(int base, int level) const {
      const int end = base + block < ranks ? base + block : ranks;
      return base + level + (end - 1 - base - level) / (2 * level) * 2 * level;
    }
    /// Returns the node that is processed before a block.
    CCL_HD constexpr int ahead_of(int base) const {
      for (;; base -= block) {
        if (base == 0) return -1;
        if (low(base) > block) return base - low(base) / 2;
        if (block > 1) return base - block / 2;
      }
    }
  };

 private:
  /// Returns the nodes of a block: half of them are leaves, and half of the leaves send over one
  /// wire before any rank receives.
  CCL_HD static constexpr int block_of(int window) {
    int block = 4;
    while (block * 2 <= 4 * window) block *= 2;
    return block;
  }
  template <class Ring>
  CCL_HD static constexpr int peer(const Ring& at, int me, int node) {
    if (node < 0) return -1;
    return node > me ? at.ahead(node - me) : at.behind(me - node);
  }
  CCL_HD static constexpr int levels(int ranks) {
    int n = 0;
    for (int below = 1; below < ranks; below *= 2) ++n;
    return n;
  }
};

}  // namespace ccl

CCL_ANY_SPACE_END
