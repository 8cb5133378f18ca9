#pragma once

#include <ccl/types/macros.hpp>

#include <cuda/std/type_traits>

CCL_ANY_SPACE_BEGIN

namespace ccl {

/// Maximum number of ranks of a peer view: the GPUs of one NVLink domain.
inline constexpr int max_view_ranks = 72;
/// Maximum number of ranks of kernels that are compiled for their number of ranks. Such kernels
/// hold a fragment of each rank in registers. A kernel for more ranks receives their number at run
/// time, and a batch of fragments at a time.
inline constexpr int max_unrolled_ranks = 8;

/// Returns the minimum number of ranks that a kernel for `most` ranks runs.
CCL_HD constexpr int fewest_ranks(int most) {
  return most > max_unrolled_ranks ? max_unrolled_ranks + 1 : most / 2 + 1;
}

template <int... Ranks>
struct RankCounts;

namespace detail {
/// Returns the hops of an algorithm that collects the tiles of all ranks `hops` times. A batch of
/// tiles beyond the first is another read of this rank's own memory: about 0.3 us, a quarter of a
/// hop. An estimate: more than 8 GPUs were not measured.
constexpr double wide_hops(int ranks, int hops) {
  const int batches = (ranks + max_unrolled_ranks - 1) / max_unrolled_ranks;
  return hops * (1 + 0.25 * (batches < 1 ? 0 : batches - 1));
}

/// Counts of a list of at most `max_unrolled_ranks`.
template <class Kept, int... Ranks>
struct UnrolledCounts {
  using Type = Kept;
};
template <int... Kept, int First, int... Others>
struct UnrolledCounts<RankCounts<Kept...>, First, Others...>
    : UnrolledCounts<cuda::std::conditional_t<(First <= max_unrolled_ranks),
                                              RankCounts<Kept..., First>, RankCounts<Kept...>>,
                     Others...> {};
}  // namespace detail

/// Numbers of ranks for which an algorithm over a peer view has kernels. A kernel for N ranks also
/// runs fewer ranks. With N up to `max_unrolled_ranks`, it runs more than N / 2 and skips the
/// absent ranks. With a larger N, it runs all numbers above `max_unrolled_ranks`. A list of the
/// program's own: `struct Mine : OneShot { using RankCounts = ccl::RankCounts<3, 6>; };`.
template <int... Ranks>
struct RankCounts {
  /// Counts of the kernels that are compiled for their number of ranks.
  using Kernels = typename detail::UnrolledCounts<RankCounts<>, Ranks...>::Type;
  /// Maximum ranks of the kernel that receives their number at run time; 0: there is none.
  static constexpr int wide = [] {
    int found = 0;
    [[maybe_unused]] const auto consider = [&](int most) {
      if (most > max_unrolled_ranks && most > found) found = most;
    };
    (consider(Ranks), ...);
    return found;
  }();
  static_assert(wide <= max_view_ranks, "ccl: a peer view has at most 72 ranks");
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
  static constexpr int wide = 0;
  static constexpr bool contains(int ranks) { return ((ranks == Ranks) || ...); }
  static_assert(((Ranks <= max_unrolled_ranks) && ...),
                "ccl: exact numbers of ranks are at most 8");
};
/// All sizes that a peer view may have, for algorithms whose kernels receive the number of ranks at
/// run time.
struct AnyRankCount {
  static constexpr bool contains(int ranks) { return ranks <= max_view_ranks; }
};
/// Takes any number of ranks up to `most`.
template <int Most>
struct AnyRankCountUpTo {
  static constexpr int max_ranks = Most;
  static constexpr bool contains(int ranks) { return ranks <= Most; }
};

}  // namespace ccl

CCL_ANY_SPACE_END
