#pragma once

namespace ccl {

/// Maximum number of ranks of a peer view.
inline constexpr int max_view_ranks = 8;

/// Sizes of communicators for which an algorithm over a peer view has kernels. The number of ranks
/// is a compile-time constant in them. A list of the program's own: `struct Mine : OneShot { using
/// RankCounts = ccl::RankCounts<3, 6>; };`.
template <int... Ranks>
struct RankCounts {
  static constexpr bool contains(int ranks) { return ((ranks == Ranks) || ...); }
};
/// All sizes that a peer view may have, for algorithms whose kernels receive the number of ranks at
/// run time.
struct AnyRankCount {
  static constexpr bool contains(int ranks) { return ranks <= max_view_ranks; }
};

}  // namespace ccl
