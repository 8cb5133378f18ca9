#pragma once

#include <ccl/algo/rank_counts.hpp>
#include <ccl/detail/base/word_set.hpp>
#include <ccl/detail/exchange/counted_exchange.hpp>
#include <ccl/detail/exchange/counted_work.hpp>
#include <ccl/detail/exchange/counts.hpp>
#include <ccl/detail/exchange/mailbox.hpp>
#include <ccl/detail/lanes/phases.hpp>
#include <ccl/proto/lane_group.hpp>
#include <ccl/types/macros.hpp>
#include <ccl/types/word.hpp>

CCL_ANY_SPACE_BEGIN

namespace ccl::detail {

/// Body of one launch of a `CountedExchange`, for an executor.
template <class Algo, class Proto, int Align, int Most = max_unrolled_ranks>
struct CountedBody {
  using Work = CountedWork;
  static constexpr int max_lanes = 512;
  const Work& work;

  template <LaneGroup Group>
  CCL_HD Word operator()(Group group, int channel) const {
    using Exchange = CountedExchange<Group, Proto, Align, Most, notes_of<Algo, Group>>;
    Exchange exchange{group, work, channel};
    Algo::run(exchange);
    return 0;
  }
  /// Counts the messages of all peers in the state that `PeerExchangeBody` also counts in.
  CCL_HD void end(Word, int block, int lane, int lanes) const {
    WordSet<2 * Most> words;
    if constexpr (Most <= max_unrolled_ranks) {
      const unsigned peers = ((1u << work.peers.ranks) - 1) & ~(1u << work.peers.rank);
      words.part[0] = peers | peers << Most;
    } else {
      for (int p = 0; p < work.peers.ranks; ++p) {
        if (p == work.peers.rank) continue;
        words.insert(p);
        words.insert(Most + p);
      }
    }
    detail::count_for_absent(work, words, block, lane, lanes);
    detail::count_own(work, words, block, lane, lanes);
  }
};

}  // namespace ccl::detail

CCL_ANY_SPACE_END
