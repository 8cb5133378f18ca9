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
  /// On the host, when all else is set.
  template <LaneGroup Group>
  static void prepare(Work& work) {
    if constexpr (requires { Exchange<Group>::deal(work); }) Exchange<Group>::deal(work);
  }
  /// All lanes of a crew: counts the messages in their copy of the state and in those of crews that
  /// had no part. Copies are equal between launches; each is one lane's.
  CCL_HD void end(Word, int crew, int lane, int lanes) const {
    constexpr int words = PeerExchangeWork::state_words;
    CCL_ROLL for (int i = crew + lane * work.crews; i < work.state.count; i += lanes * work.crews) {
      CCL_UNROLL for (int w = 0; w < words; ++w) {
        const int p = w % PeerExchangeWork::most_ranks;
        const bool sent = w < PeerExchangeWork::most_ranks;
        if (p == work.peers.rank || (sent ? work.out : work.in)[p].bytes == 0) continue;
        ++work.state.copies[i * words + w];
      }
    }
  }
};

}  // namespace ccl
