#pragma once

#include <ccl/detail/exchange/counts.hpp>
#include <ccl/detail/exchange/mailbox.hpp>
#include <ccl/proto/lane_group.hpp>
#include <ccl/types/macros.hpp>

CCL_ANY_SPACE_BEGIN

namespace ccl::detail {

/// Body of one launch of an exchange over a peer view, for an executor. Runs `Algo::run(exchange)`,
/// then counts the messages.
template <class Algo, template <class> class Exchange, int Most = max_unrolled_ranks>
struct PeerExchangeBody {
  using Work = BasicPeerExchangeWork<Most>;
  static constexpr int max_lanes = 512;
  const Work& work;

  template <LaneGroup Group>
  CCL_HD Word operator()(Group group, int channel) const {
    Exchange<Group> exchange{group, work, channel};
    Algo::run(exchange);
    return 0;
  }
  /// Completes the arguments on the host, after all other members are set.
  template <LaneGroup Group>
  static void prepare(Work& work) {
    using Number = typename Work::Partners::Number;
    work.counts = {};
    work.to = work.from = {};
    for (int k = 0; k < work.peers.ranks; ++k) {
      const int p = (work.peers.rank + k) % work.peers.ranks;
      const int behind = (work.peers.rank + work.peers.ranks - k) % work.peers.ranks;
      if (work.out[p].bytes > 0) work.to.rank[work.to.count++] = Number(p);
      if (k == 0) continue;
      if (work.in[behind].bytes > 0) work.from.rank[work.from.count++] = Number(behind);
      if (work.out[p].bytes > 0) work.counts.insert(p);
      if (work.in[p].bytes > 0) work.counts.insert(Most + p);
    }
    if constexpr (requires { Exchange<Group>::assign_tiles(work); })
      Exchange<Group>::assign_tiles(work);
  }
  /// Counts the messages in the copy of this block. The exchange itself counts for absent blocks.
  CCL_HD void end(Word, int block, int lane, int lanes) const {
    detail::count_own(work, work.counts, block, lane, lanes);
  }
};

}  // namespace ccl::detail

CCL_ANY_SPACE_END
