#pragma once

#include <ccl/algo/rank_counts.hpp>
#include <ccl/detail/lanes/spin_wait.hpp>
#include <ccl/proto/protocol.hpp>
#include <ccl/types/macros.hpp>

CCL_ANY_SPACE_BEGIN

namespace ccl::detail {

/// N fragments by value, in registers.
template <class Fragment, int N>
struct Fragments {
  Fragment of[N];
};

/// Waits for N adjacent tiles that carry `flag`. Issues all loads before the first check, so that N
/// latencies overlap. The arrival of the tiles or the spin wait for `peer` ends the loop.
template <int N, class Lane, class Memory>
CCL_HD Fragments<typename Lane::Fragment, N> collect(const Lane& lane, const Packet* tile,
                                                     Word flag, int peer,
                                                     SpinWait<Memory>& spin_wait) {
  typename Lane::Arrival got[N];
  bool has_arrived;
  do {
    CCL_UNROLL for (int n = 0; n < N; ++n) got[n] = lane.load(tile + n * Lane::tile_packets);
    has_arrived = true;
    CCL_UNROLL for (int n = 0; n < N; ++n) has_arrived =
        has_arrived & lane.has_arrived(got[n], flag);
  } while (!lane.agree(has_arrived) &&
           !lane.agree(spin_wait.ends(peer, flag - 1)));  // the steps before it
  Fragments<typename Lane::Fragment, N> result;
  CCL_UNROLL for (int n = 0; n < N; ++n) result.of[n] = lane.unpack(got[n]);
  return result;
}

/// Waits for one tile of each of `ranks` peers, at most N and at least `Fewest`. Tile n is
/// that of rank n, `stride` packets after tile n - 1. `skip` is a rank that sends none; its tile is
/// loaded too, because a branch would separate the loads. For absent ranks, the tile of a present
/// rank is loaded again.
template <int N, int Fewest = fewest_ranks(N), class Lane, class Memory>
CCL_HD Fragments<typename Lane::Fragment, N> collect_peers(const Lane& lane, const Packet* tile,
                                                           Index stride, Word flag, int skip,
                                                           int ranks, SpinWait<Memory>& spin_wait) {
  typename Lane::Arrival got[N];
  bool has_arrived;
  int late = -1;
  const int other = skip + 1 < ranks ? skip + 1 : 0;
  do {
    CCL_UNROLL for (int n = 0; n < N; ++n) {
      const int row = n < Fewest || n < ranks ? n : other;
      got[n] = lane.load(tile + row * stride);
    }
    has_arrived = true;
    CCL_UNROLL for (int n = 0; n < N; ++n) has_arrived =
        has_arrived & ((n == skip) | lane.has_arrived(got[n], flag));
    if (lane.agree(has_arrived)) break;
    CCL_UNROLL for (int n = 0; n < N; ++n) {
      if (n != skip && !lane.has_arrived(got[n], flag)) late = n;
    }
    if (late >= ranks) late = other;
    if (has_arrived) late = -1;
  } while (!lane.agree(spin_wait.ends(late, flag)));
  Fragments<typename Lane::Fragment, N> result;
  CCL_UNROLL for (int n = 0; n < N; ++n) result.of[n] = lane.unpack(got[n]);
  return result;
}

/// Waits for the tile of each of the `ranks` ranks from `first` on, at most N, as `collect_peers`
/// does. `tile` and `skip` are those of rank `first` and counted from it; -1: none is skipped.
template <int N, class Lane, class Memory>
CCL_HD Fragments<typename Lane::Fragment, N> collect_batch(const Lane& lane, const Packet* tile,
                                                           Index stride, Word flag, int skip,
                                                           int ranks, SpinWait<Memory>& spin_wait,
                                                           int first) {
  typename Lane::Arrival got[N];
  const int other = skip == 0 ? 1 : 0;  // loaded in place of absent ranks
  for (;;) {
    CCL_UNROLL for (int n = 0; n < N; ++n) {
      got[n] = lane.load(tile + (n < ranks ? n : other) * stride);
    }
    int late = -1;
    CCL_UNROLL for (int n = 0; n < N; ++n) {
      const bool awaited = n < ranks && n != skip;
      if (awaited && !lane.has_arrived(got[n], flag)) late = first + n;
    }
    if (lane.agree(late < 0)) break;
    if (lane.agree(spin_wait.ends(late, flag))) break;
  }
  Fragments<typename Lane::Fragment, N> result;
  CCL_UNROLL for (int n = 0; n < N; ++n) result.of[n] = lane.unpack(got[n]);
  return result;
}

/// Waits for N rows of `M` tiles each, in one latency. Tile m of row n is at `at(n, m)` and comes
/// from rank `who(n, m)`.
template <int N, int M, class Lane, class At, class Who, class Memory>
CCL_HD Fragments<Fragments<typename Lane::Fragment, M>, N> collect_grid(
    const Lane& lane, At at, Who who, Word flag, SpinWait<Memory>& spin_wait) {
  typename Lane::Arrival got[N][M];
  int late;
  do {
    CCL_UNROLL for (int n = 0; n < N; ++n) {
      CCL_UNROLL for (int m = 0; m < M; ++m) got[n][m] = lane.load(at(n, m));
    }
    bool has_arrived = true;
    CCL_UNROLL for (int n = 0; n < N; ++n) {
      CCL_UNROLL for (int m = 0; m < M; ++m) has_arrived =
          has_arrived & lane.has_arrived(got[n][m], flag);
    }
    if (lane.agree(has_arrived)) break;
    late = -1;
    CCL_UNROLL for (int n = 0; n < N; ++n) {
      CCL_UNROLL for (int m = 0; m < M; ++m) {
        if (!lane.has_arrived(got[n][m], flag)) late = who(n, m);
      }
    }
  } while (!lane.agree(spin_wait.ends(late, flag - 1)));
  Fragments<Fragments<typename Lane::Fragment, M>, N> result;
  CCL_UNROLL for (int n = 0; n < N; ++n) {
    CCL_UNROLL for (int m = 0; m < M; ++m) result.of[n].of[m] = lane.unpack(got[n][m]);
  }
  return result;
}

}  // namespace ccl::detail

CCL_ANY_SPACE_END
