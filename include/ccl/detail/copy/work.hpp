#pragma once

#include <ccl/detail/lanes/peer_view.hpp>
#include <ccl/detail/lanes/spin_wait.hpp>
#include <ccl/detail/wire/work.hpp>

namespace ccl::detail {

/// Arguments of a synchronization between the copies of a launch. Each pair of ranks counts its
/// posts. The counts are in memory, so that replays of a graph count like launches.
struct CopySync {
  /// Both ends post and await each kind equally often.
  enum Kind { filled, emptied, kinds };
  static constexpr int max_ranks = max_unrolled_ranks;
  /// Words of `counts`: posts to each rank, then posts of each rank that were awaited.
  static constexpr int count_words = 2 * kinds * max_ranks;

  PeerView peers;
  Word* counts = nullptr;      // in this rank's memory
  unsigned post[kinds] = {};   // bit p: post to rank p that earlier work of the stream is done
  unsigned await[kinds] = {};  // bit p: await one more post of rank p
  AbortWatch watch;
};

/// Runs of this rank's own memory that its multiprocessors copy.
struct CopyRuns {
  static constexpr int most = max_unrolled_ranks;
  struct Run {
    char* to = nullptr;
    const char* from = nullptr;
    Index bytes = 0;
  };
  Run run[most];
  int count = 0;
  int channels = 1;
};

/// Pieces of one share from all ranks, reduced in rank order. No piece is prepared.
template <class R>
struct CopyReduction {
  explicit CopyReduction(const R& how) : reduction{how} {}
  const void* piece[max_unrolled_ranks] = {};
  int ranks = 1;
  void* output = nullptr;
  void* also = nullptr;  // a second copy of the result; may be null
  Index count = 0;       // elements
  int channels = 1;
  R reduction;
};

}  // namespace ccl::detail
