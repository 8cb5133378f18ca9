#pragma once

#include <ccl/detail/lanes/peer_view.hpp>
#include <ccl/detail/lanes/spin_wait.hpp>
#include <ccl/detail/lanes/window_place.hpp>
#include <ccl/detail/wire/work.hpp>
#include <ccl/types/macros.hpp>

CCL_ANY_SPACE_BEGIN

namespace ccl::detail {

/// Arguments of a synchronization between the copies of a launch. Each pair of ranks counts its
/// posts. The counts are in memory, so that replays of a graph count like launches.
///
/// Posts carry the place of the sender's receive buffer. A rank that finds another place than its
/// own, in the post that it awaits or in another one of the call, fails with
/// `LaneFailure::other_place`: one of both would write where the other does not expect it.
struct CopySync {
  /// Both ends post and await each kind equally often.
  enum Kind { filled, emptied, kinds };
  /// Line of a mailbox with the last call of the writer's that another composition ran.
  static constexpr int outside_line = kinds;
  /// Places of this many last posts of a kind are kept: a rank is at most one ahead.
  static constexpr int kept_places = 4;
  static constexpr int max_ranks = max_unrolled_ranks;
  /// Words of `counts`: posts to each rank, then posts of each rank that were awaited.
  static constexpr int count_words = 2 * kinds * max_ranks;

  PeerView peers;
  Word* counts = nullptr;      // in this rank's memory
  unsigned post[kinds] = {};   // bit p: post to rank p that earlier work of the stream is done
  unsigned await[kinds] = {};  // bit p: await one more post of rank p
  Word place = 0;              // `WindowPlaceWord` of the call; 0: not compared
  Word call = 0;               // number of the call, if all ranks number it alike, or 0
  unsigned outside = 0;  // bit p: tell rank p that another composition runs `call` on this rank
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

CCL_ANY_SPACE_END
