#pragma once

#include <ccl/types/macros.hpp>

namespace ccl {

/// Maximum number of ranks of a peer view.
inline constexpr int max_view_ranks = 8;

/// Returns the minimum number of ranks that a kernel for `most` ranks runs.
CCL_HD constexpr int fewest_ranks(int most) {
  return most / 2 + 1;
}

/// Numbers of ranks for which an algorithm over a peer view has kernels. A kernel for N ranks also
/// runs fewer ranks, but more than N / 2. It skips the absent ranks. A list of the program's own:
/// `struct Mine : OneShot { using RankCounts = ccl::RankCounts<3, 6>; };`.
template <int... Ranks>
struct RankCounts {
  using Kernels = RankCounts;
  /// Returns the N of the smallest kernel that runs `ranks` ranks, or 0 if none does.
  static constexpr int kernel_for(int ranks) {
    int found = 0;
    [[maybe_unused]] const auto consider = [&](int most) {
      const bool runs = ranks <= most && ranks >= fewest_ranks(most);
      if (runs && (found == 0 || most < found)) found = most;
    };
    (consider(Ranks), ...);
    return found;
  }
  static constexpr bool contains(int ranks) { return kernel_for(ranks) != 0; }
};
/// Numbers of ranks for which an algorithm has kernels, if these run no other number.
template <int... Ranks>
struct ExactRankCounts {
  using Kernels = RankCounts<Ranks...>;
  static constexpr bool contains(int ranks) { return ((ranks == Ranks) || ...); }
};
/// All sizes that a peer view may have, for algorithms whose kernels receive the number of ranks at
/// run time.
struct AnyRankCount {
  static constexpr bool contains(int ranks) { return ranks <= max_view_ranks; }
};

}  // namespace ccl
