#pragma once

#include <limits>

namespace ccl::detail {

/// Multiprocessors that the launches of one communicator may hold: the launch that runs, and the
/// launches that begin early and wait behind it. Not safe for threads; the lock of the launches
/// guards it.
struct LaunchShare {
  int blocks = 0;  // upper limit of `held` with early launches; 0: no launch begins early
  int held = 0;    // blocks of the last launch that was not early, and of the early ones behind it
  /// Blocks of a thread block cluster, if a launch is to have some; 1: it has none.
  int cluster = 1;

  /// Smallest launch that has clusters. Smaller ones end so soon that places do not matter.
  static constexpr int min_clustered = 16;

  /// Returns a share that lets every launch begin early.
  static LaunchShare whole_gpu() { return {std::numeric_limits<int>::max(), 0, 1}; }

  /// Counts a launch of `more` blocks. Returns true if it may begin early. Otherwise it begins when
  /// all launches before it have ended, so it holds its own blocks only.
  bool take(int more) {
    const bool early = more <= blocks - held;
    held = early ? held + more : more;
    return early;
  }
  /// Returns the blocks of each cluster of a launch of `count` blocks.
  int cluster_of(int count) const {
    return count >= min_clustered && count % cluster == 0 ? cluster : 1;
  }
  /// Counts a launch of `count` blocks that begins when all launches before it have ended.
  void take_alone(int count) { held = count; }
};

}  // namespace ccl::detail
