#pragma once

#include <ccl/algo/cost.hpp>
#include <ccl/types/macros.hpp>
#include <ccl/types/operations.hpp>
#include <ccl/types/position.hpp>
#include <ccl/types/word.hpp>

CCL_ANY_SPACE_BEGIN

namespace ccl {

/// Recursive halving: each rank exchanges partial sums with the rank whose place in the ring
/// differs in one bit, bit by bit, neighbors first. Each sends the sums of the other's half. A rank
/// sends log2(R) messages of halves, quarters and so on. No more bytes move than in `Ring`, and
/// none twice between hosts.
///
/// Only the result is stored: an early part waits in its slot until the last part of its sum
/// arrives. The steps are those of one tree for each share. A rank at place p is node p ^ s of the
/// tree of the rank at place s. Node n has a child for each bit below its lowest one.
///
/// Beyond blocks of 8 nodes (4 if there are partners) a chain of their first nodes follows. A step
/// can add up only a few messages. Ranks beyond the largest power of two send all their data to a
/// partner first and receive their share last.
struct Halving {
  using Validated = Halving;  // tests validate the algorithm: compositions need no dry run
  static constexpr const char* name = "Halving";
  static constexpr bool reorders = true;
  static constexpr bool root_moves_wires = false;
  /// Returns the maximum number of wires into one rank. The memory plan assumes it.
  static constexpr int max_wires(int ranks) {
    const int all = detail::doublings(ranks) + 1;
    return all < ranks - 1 ? all : ranks - 1;
  }
  static constexpr int wires = 5;  ///< wires of a rank that one channel uses at once
  template <class Op>
  static constexpr bool supports = is_one_of<Op, ReduceScatter>;
  template <class Op>
  static constexpr CostTerms cost_terms(int ranks) {
    const int paired = power_of_two(ranks), blocks = paired / block_of(ranks);
    const double surplus = paired == ranks ? 0 : 2;
    const double hops = detail::doublings(block_of(ranks)) + blocks - 1 + surplus;
    // One step for each share, many at once. Slots are copied, which a ring avoids.
    return {hops + 0.1 * (ranks - 1), (1.05 + surplus / 2) * (ranks - 1.0) / ranks};
  }

  /// Returns the inter-node volume: a host's sums leave it once.
  template <class Op>
  static constexpr double inter_node_volume(int ranks, int hosts) {
    const double once = 1.05 * (hosts - 1) / hosts, all = cost_terms<Op>(ranks).volume;
    return power_of_two(ranks) == ranks ? once : all;
  }

  /// Returns the inter-node fraction of the hops; the near hops stay on a host.
  static constexpr double inter_node_fraction(int ranks, int hosts) {
    const double far = detail::doublings(hosts), all = detail::doublings(ranks);
    return far < all ? far / all : 1;
  }

  template <class Positions>
  static constexpr void peers(Positions& positions) {
    const auto at = positions.ring();
    const int place = at.place, paired = power_of_two(at.ranks);
    const auto both = [&](int other) {
      positions.from(at.rank_at(other));
      positions.to(at.rank_at(other));
    };
    if (place >= paired) return both(place - paired);
    if (place + paired < at.ranks) both(place + paired);
    const int block = block_of(at.ranks);
    for (int bit = 1; bit < block; bit <<= 1) both(place ^ bit);
    // The chain goes from the first node of a block to the first of the block before it. The mask
    // holds all bits of its number that change.
    for (int bits = block; bits < paired; bits = bits << 1 | block) both(place ^ bits);
  }

  template <class Context>
  CCL_HD static constexpr void run(ReduceScatter, Context& context) {
    const auto at = context.ring();
    const int paired = power_of_two(at.ranks), block = block_of(at.ranks);
    for (auto chunks = context.chunks(at.ranks); chunks.next();) {
      // Leaves of a batch send before any rank receives, two shares each if there are partners.
      const int window = context.window(chunks.share(at.rank()).count);
      const int most = at.ranks == paired ? 2 * window : window;
      int batch = block;
      while (batch > most && batch > 1) batch /= 2;
      for (int base = paired - batch; base >= 0; base -= batch) {
        for (int i = batch - 1; i >= 0; --i) {
          const int node = base + mirrored(i, batch);
          if (at.place < paired) {
            visit(context, chunks, node, paired, block);
          } else {
            hand_over(context, chunks, node, paired);
          }
        }
      }
    }
  }

 private:
  static constexpr int max_in = 4;  // bits of a block, the next block, a partner

  /// Runs the steps of this rank as `node` of the trees of a share and of the partner's share.
  template <class Context, class Parts>
  CCL_HD static constexpr void visit(Context& context, Parts& chunks, int node, int paired,
                                     int block) {
    const auto at = context.ring();
    const int low = node & -node, inner = node & (block - 1);
    const int partner = at.place + paired < at.ranks ? at.rank_at(at.place + paired) : -1;
    int in[max_in] = {partner, -1, -1, -1};
    int count = partner >= 0 ? 1 : 0;
    for (int bit = 1; bit < (inner != 0 ? low : block); bit <<= 1) {
      in[count++] = at.rank_at(at.place ^ bit);
    }
    const bool chained = inner == 0 && node + block < paired;
    if (chained) in[count++] = at.rank_at(at.place ^ node ^ (node + block));
    const int parent = inner != 0 ? node - low : node - block;

    const int of = at.place ^ node;
    const bool two = of + paired < at.ranks;
    const auto share = chunks.share(at.rank_at(of));
    if (node != 0) {
      const int to = at.rank_at(at.place ^ node ^ parent);
      auto prims = context.template prims<max_in, 1>({in[0], in[1], in[2], in[3]}, {to});
      for (int n = 0; n < (two ? 2 : 1); ++n) {
        const auto part = n == 0 ? share : chunks.share(at.rank_at(of + paired));
        if (count == 0) {
          prims.send(part);
        } else {
          prims.recv_reduce_send(part);
        }
      }
      return;
    }
    {
      auto prims = context.template prims<max_in, 1>({in[0], in[1], in[2], in[3]}, {-1});
      prims.recv_reduce_copy(share);
    }
    if (!two) return;
    // The partner adds its own part of its share itself.
    auto prims = context.template prims<max_in - 1, 1>({in[1], in[2], in[3]}, {partner});
    prims.recv_reduce_send(chunks.share(at.rank_at(of + paired)));
  }

  /// Sends to the partner the data that it waits for at this node.
  template <class Context, class Parts>
  CCL_HD static constexpr void hand_over(Context& context, Parts& chunks, int node, int paired) {
    const auto at = context.ring();
    const int partner = at.rank_at(at.place - paired), of = (at.place - paired) ^ node;
    auto prims = context.template prims<1, 1>({partner}, {partner});
    prims.send(chunks.share(at.rank_at(of)));
    if (of + paired >= at.ranks) return;
    const auto other = chunks.share(at.rank_at(of + paired));
    if (node != 0) return prims.send(other);
    prims.recv_reduce_copy(other);
  }

  /// Returns `i` with its bits reversed. Counted down, it gives first the odd numbers, then those
  /// that two divides once, and so on. Within each group the order is that of the remaining bits,
  /// in which the receivers take them.
  CCL_HD static constexpr int mirrored(int i, int batch) {
    int out = 0;
    for (int bit = 1, other = batch / 2; bit < batch; bit <<= 1, other >>= 1) {
      if ((i & bit) != 0) out |= other;
    }
    return out;
  }
  CCL_HD static constexpr int power_of_two(int ranks) {
    int paired = 1;
    while (paired * 2 <= ranks) paired *= 2;
    return paired;
  }
  CCL_HD static constexpr int block_of(int ranks) {
    const int paired = power_of_two(ranks), most = paired == ranks ? 8 : 4;
    return paired < most ? paired : most;
  }
};

}  // namespace ccl

CCL_ANY_SPACE_END
