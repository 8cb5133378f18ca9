#pragma once

#include <ccl/patience.hpp>
#include <ccl/proto/protocol.hpp>

namespace ccl {

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
                                                     Patience<Memory>& patience) {
  typename Lane::Arrival got[N];
  bool here;
  do {
    CCL_UNROLL for (int n = 0; n < N; ++n) got[n] = lane.load(tile + n * Lane::tile_packets);
    here = true;
    CCL_UNROLL for (int n = 0; n < N; ++n) here = here & lane.here(got[n], flag);
  } while (!lane.agree(here) && !lane.agree(patience.ends(peer, flag - 1)));  // steps before it
  Fragments<typename Lane::Fragment, N> result;
  CCL_UNROLL for (int n = 0; n < N; ++n) result.of[n] = lane.unpack(got[n]);
  return result;
}

/// The same from N peers: tile n is that of rank n, `stride` packets after the one before. `skip`
/// is a rank that sends none; its tile is loaded too, as a branch among the loads would part them.
template <int N, class Lane, class Memory>
CCL_HD Fragments<typename Lane::Fragment, N> collect_peers(const Lane& lane, const Packet* tile,
                                                           Index stride, Word flag, int skip,
                                                           Patience<Memory>& patience) {
  typename Lane::Arrival got[N];
  bool here;
  int late = -1;
  do {
    CCL_UNROLL for (int n = 0; n < N; ++n) got[n] = lane.load(tile + n * stride);
    here = true;
    CCL_UNROLL for (int n = 0; n < N; ++n) here = here & ((n == skip) | lane.here(got[n], flag));
    if (lane.agree(here)) break;
    CCL_UNROLL for (int n = 0; n < N; ++n) {
      if (n != skip && !lane.here(got[n], flag)) late = n;
    }
    if (here) late = -1;
  } while (!lane.agree(patience.ends(late, flag)));
  Fragments<typename Lane::Fragment, N> result;
  CCL_UNROLL for (int n = 0; n < N; ++n) result.of[n] = lane.unpack(got[n]);
  return result;
}

/// N tiles of each of `Ranks` peers, `at(n, rank)`, in one latency.
template <int N, int Ranks, class Lane, class At, class Memory>
CCL_HD Fragments<Fragments<typename Lane::Fragment, Ranks>, N> collect_grid(
    const Lane& lane, At at, Word flag, Patience<Memory>& patience) {
  typename Lane::Arrival got[N][Ranks];
  bool here;
  int late;
  do {
    CCL_UNROLL for (int n = 0; n < N; ++n) {
      CCL_UNROLL for (int r = 0; r < Ranks; ++r) got[n][r] = lane.load(at(n, r));
    }
    here = true;
    late = -1;
    CCL_UNROLL for (int n = 0; n < N; ++n) {
      CCL_UNROLL for (int r = 0; r < Ranks; ++r) here = here & lane.here(got[n][r], flag);
    }
    if (lane.agree(here)) break;
    CCL_UNROLL for (int n = 0; n < N; ++n) {
      CCL_UNROLL for (int r = 0; r < Ranks; ++r) {
        if (!lane.here(got[n][r], flag)) late = r;
      }
    }
  } while (!lane.agree(patience.ends(late, flag)));
  Fragments<Fragments<typename Lane::Fragment, Ranks>, N> result;
  CCL_UNROLL for (int n = 0; n < N; ++n) {
    CCL_UNROLL for (int r = 0; r < Ranks; ++r) result.of[n].of[r] = lane.unpack(got[n][r]);
  }
  return result;
}

}  // namespace ccl
