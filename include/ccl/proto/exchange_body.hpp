#pragma once

#include <ccl/lane_group.hpp>
#include <ccl/mail.hpp>

namespace ccl {

/// One launch of an exchange over a peer view, as an executor runs it: `Algo::run(exchange)`, and
/// the count of its messages.
template <class Algo, template <class> class Exchange>
struct PeerExchangeBody {
  using Work = PeerExchangeWork;
  static constexpr int max_lanes = 512;
  const Work& work;

  template <LaneGroup Group>
  CCL_HD Word operator()(Group group, int channel) const {
    Exchange<Group> exchange{group, work, channel};
    Algo::run(exchange);
    return 0;
  }
  /// All lanes of a crew: counts the messages in their copy of the state and in those of crews that
  /// had no part.
  CCL_HD void end(Word, int crew, int lane, int lanes) const {
    constexpr int words = PeerExchangeWork::state_words;
    CCL_ROLL for (int w = lane; w < words; w += lanes) {
      const int p = w % PeerExchangeWork::most_ranks;
      const bool sent = w < PeerExchangeWork::most_ranks;
      const Index bytes = p == work.peers.rank ? 0 : (sent ? work.out : work.in)[p].bytes;
      const Word count = work.state.copies[crew * words + w] + Word(bytes > 0);
      CCL_ROLL for (int i = crew; i < work.state.count; i += work.crews) {
        work.state.copies[i * words + w] = count;
      }
    }
  }
};

}  // namespace ccl
