#pragma once

namespace ccl {

/// Most ranks of a peer view.
inline constexpr int max_view_ranks = 8;

/// The sizes of communicators for which an algorithm over a peer view has kernels: the number of
/// ranks is known to the compiler. A user's own list: `struct Mine : OneShot { using RankCounts =
/// ccl::RankCounts<3, 6>; };`.
template <int... Ranks>
struct RankCounts {
  static constexpr bool contains(int ranks) { return ((ranks == Ranks) || ...); }
};
/// All that a peer view may have: of an algorithm whose kernels are told the number of ranks.
struct AnyRankCount {
  static constexpr bool contains(int ranks) { return ranks <= max_view_ranks; }
};

}  // namespace ccl
