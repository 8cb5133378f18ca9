#pragma once

#include <ccl/types/word.hpp>

CCL_ANY_SPACE_BEGIN

namespace ccl {

/// Position of a rank in a ring. `order[i]` is the rank at place i. All ranks hold the same order.
struct RingPosition {
  int place = 0;
  int ranks = 1;
  const int* order = nullptr;  ///< `ranks` entries; must outlive the position

  CCL_HD constexpr int rank() const { return order[place]; }
  CCL_HD constexpr int rank_at(int n) const { return order[n]; }
  /// Returns the rank n places before (`behind`) or after (`ahead`) this one; 0 <= n <= ranks.
  CCL_HD constexpr int behind(int n) const { return at(place + ranks - n); }
  CCL_HD constexpr int ahead(int n) const { return at(place + n); }
  CCL_HD constexpr int prev() const { return behind(1); }
  CCL_HD constexpr int next() const { return ahead(1); }
  /// Returns the number of places from `rank` to this rank along the ring, or -1 if it is not in
  /// it.
  CCL_HD constexpr int distance_from(int rank) const {
    for (int n = 0; n < ranks; ++n) {
      if (behind(n) == rank) return n;
    }
    return -1;
  }

 private:
  CCL_HD constexpr int at(int i) const { return order[i < ranks ? i : i - ranks]; }
};

/// Ring position with the whole order in one register, if the ring has at most 16 ranks. Each step
/// of a ring reads the order, and a read from memory takes as long as a small step.
class NearRingPosition {
 public:
  /// Packs the order of `position`, which must lie in memory and outlive this object.
  explicit CCL_HD NearRingPosition(const RingPosition& position)
      : place{position.place}, ranks{position.ranks} {
    if (ranks > most) order_ = reinterpret_cast<cuda::std::uintptr_t>(&position);
    for (int n = 0; n < ranks && ranks <= most; ++n) order_ |= Word(position.order[n]) << 4 * n;
    if (ranks <= most) order_ = order_ >> 4 * place | order_ << (4 * (ranks - place) & 63);
  }
  CCL_HD int rank() const { return far(0); }
  CCL_HD int rank_at(int n) const { return far(n < place ? n + ranks - place : n - place); }
  CCL_HD int behind(int n) const { return far(ranks - n); }
  CCL_HD int ahead(int n) const { return far(n); }
  CCL_HD int prev() const { return behind(1); }
  CCL_HD int next() const { return ahead(1); }
  CCL_HD int distance_from(int rank) const {
    for (int n = 0; n < ranks; ++n) {
      if (behind(n) == rank) return n;
    }
    return -1;
  }

  int place, ranks;

 private:
  static constexpr int most = 16;  // ranks in the register, four bits each
  /// Returns the rank n places after this one; 0 <= n <= ranks.
  CCL_HD int far(int n) const {
    if (ranks > most) return reinterpret_cast<const RingPosition*>(order_)->ahead(n);
    return int(order_ >> (4 * n & 63) & 15);
  }

  // Order from this rank on, repeated if there is room; or address of the position.
  Word order_ = 0;
};

/// Position of a rank among the ranks of its host, for algorithms whose network reduces between
/// hosts. The first `heads` ranks of the order are heads: they send to the network and receive from
/// it. All ranks of a host hold the same order.
struct HostPosition {
  int place = 0;
  int ranks = 1;  ///< ranks of the host
  int heads = 1;
  const int* order = nullptr;  ///< `ranks` entries; must outlive the position
  int host = 0;                ///< index of this host
  int hosts = 1;
  /// Heads of all hosts, `heads` for each; must outlive the position. Null if channels have
  /// different heads.
  const int* all_heads = nullptr;

  CCL_HD constexpr int rank() const { return order[place]; }
  CCL_HD constexpr int rank_at(int n) const { return order[n]; }
  /// Returns the rank that is head n of a host.
  CCL_HD constexpr int head_of(int of_host, int n) const { return all_heads[of_host * heads + n]; }
  CCL_HD constexpr bool is_head() const { return place < heads; }
  CCL_HD constexpr bool is_last() const { return place + 1 == ranks; }
  /// Returns the rank one place before (`prev`) or after (`next`) this one, or -1 if there is none.
  CCL_HD constexpr int prev() const { return place > 0 ? order[place - 1] : -1; }
  CCL_HD constexpr int next() const { return is_last() ? -1 : order[place + 1]; }
};

/// Position of a rank in a tree. Members are ranks, or -1 for none.
struct TreePosition {
  static constexpr int arity = 3;  ///< NCCL_MAX_TREE_ARITY
  int up = -1;
  int down[arity] = {-1, -1, -1};
  /// Edges between this rank and the root: inside machines (`near`) and over a network (`far`).
  int near = 0, far = 0;

  CCL_HD constexpr bool is_root() const { return up < 0; }
  CCL_HD constexpr bool is_leaf() const { return down[0] < 0 && down[1] < 0 && down[2] < 0; }
};

namespace detail {
/// Returns the position of `rank` in the binary tree over 0..ranks-1. The height of a node is its
/// lowest set bit: odd ranks are leaves, and 0 is the root with one child.
CCL_HD constexpr TreePosition binary_tree(int rank, int ranks) {
  TreePosition position;
  int bit = 1;
  while (bit < ranks && (rank & bit) == 0) bit <<= 1;
  int below = bit >> 1;
  if (rank == 0) {
    if (ranks > 1) position.down[0] = below;
    return position;
  }
  position.up = (rank ^ bit) | (bit << 1);
  if (position.up >= ranks) position.up = rank ^ bit;
  if (below == 0) return position;
  position.down[0] = rank - below;
  while (below != 0 && rank + below >= ranks) below >>= 1;
  if (below != 0) position.down[1] = rank + below;
  return position;
}
}  // namespace detail

/// Returns the position of `rank` in tree `which` (0 or 1) of the double binary tree (Sanders,
/// Speck, Traeff 2009). The first tree has `root` as its root. The second is mirrored (even
/// `ranks`) or shifted by one (odd), so that a leaf of one tree is an inner node of the other.
///
/// Pass `which` 0 for both trees if `root` must be the root of both.
CCL_HD constexpr TreePosition double_binary_tree(int rank, int ranks, int root, int which) {
  const int place = (rank + ranks - root) % ranks;
  const auto flip = [ranks](int p, bool back) {
    if (p < 0) return -1;
    if (ranks % 2 == 0) return ranks - 1 - p;
    return (p + (back ? 1 : ranks - 1)) % ranks;
  };
  TreePosition position = which == 0 ? detail::binary_tree(place, ranks)
                                     : detail::binary_tree(flip(place, false), ranks);
  // In the tree's own numbers, each step up from a node other than 0 is one edge.
  for (int up = which == 0 ? place : flip(place, false); up > 0; ++position.near) {
    up = detail::binary_tree(up, ranks).up;
  }
  const auto rank_of = [ranks, root](int p) { return p < 0 ? -1 : (p + root) % ranks; };
  if (which != 0) {
    position.up = flip(position.up, true);
    for (int& d : position.down) d = flip(d, true);
  }
  position.up = rank_of(position.up);
  for (int& d : position.down) d = rank_of(d);
  return position;
}

}  // namespace ccl

CCL_ANY_SPACE_END
