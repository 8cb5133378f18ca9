#pragma once

#include <ccl/detail/lanes/spin_wait.hpp>
#include <ccl/proto/protocol.hpp>

namespace ccl::detail {

/// N fragments by value: what a batch of loads leaves in registers.
template <class Fragment, int N>
struct Fragments {
  Fragment of[N];
};

/// Waits for N tiles that lie one after another and carry `flag`: loads all, then looks at all, so
/// that N latencies are one. Ends when the tiles are here or patience with `peer` is not.
template <int N, class Lane, class Memory>
CCL_HD Fragments<typename Lane::Fragment, N> collect(const Lane& lane, const Packet* tile,
                                                     Word flag, int peer,
                                                     SpinWait<Memory>& spin_wait) {
  typename Lane::Arrival got[N];
  bool has_arrived;
  do {
    CCL_UNROLL for (int n = 0; n < N; ++n) got[n] = lane.load(tile + n * Lane::tile_packets);
    has_arrived = true;
    CCL_UNROLL for (int n = 0; n < N; ++n) has_arrived = has_arrived & lane.has_arrived(got[n], flag);
  } while (!lane.agree(has_arrived) && !lane.agree(spin_wait.ends(peer, flag - 1)));  // steps before it
  Fragments<typename Lane::Fragment, N> result;
  CCL_UNROLL for (int n = 0; n < N; ++n) result.of[n] = lane.unpack(got[n]);
  return result;
}

/// The same from N peers: tile n is that of rank n, `stride` packets after the one before. `skip`
/// is a rank that sends none; its tile is loaded too, as a branch among the loads would part them.
template <int N, class Lane, class Memory>
CCL_HD Fragments<typename Lane::Fragment, N> collect_peers(const Lane& lane, const Packet* tile,
                                                           Index stride, Word flag, int skip,
                                                           SpinWait<Memory>& spin_wait) {
  typename Lane::Arrival got[N];
  bool has_arrived;
  int late = -1;
  do {
    CCL_UNROLL for (int n = 0; n < N; ++n) got[n] = lane.load(tile + n * stride);
    has_arrived = true;
    CCL_UNROLL for (int n = 0; n < N; ++n) has_arrived = has_arrived & ((n == skip) | lane.has_arrived(got[n], flag));
    if (lane.agree(has_arrived)) break;
    CCL_UNROLL for (int n = 0; n < N; ++n) {
      if (n != skip && !lane.has_arrived(got[n], flag)) late = n;
    }
    if (has_arrived) late = -1;
  } while (!lane.agree(spin_wait.ends(late, flag)));
  Fragments<typename Lane::Fragment, N> result;
  CCL_UNROLL for (int n = 0; n < N; ++n) result.of[n] = lane.unpack(got[n]);
  return result;
}

/// N rows of `M` tiles each in one latency, tile m of row n at `at(n, m)`, from rank `who(n, m)`.
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
      CCL_UNROLL for (int m = 0; m < M; ++m) has_arrived = has_arrived & lane.has_arrived(got[n][m], flag);
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
