#pragma once

#include <ccl/lane_group.hpp>
#include <ccl/mail.hpp>
#include <ccl/ptx.hpp>

#include <nv/target>

namespace ccl {
namespace detail {
/// Adds one to a word that no other lane writes, and does not wait for it.
CCL_HD void count_one(Word* at) {
  NV_IF_ELSE_TARGET(NV_IS_DEVICE, (ptx::add_one(at);), (++*at;))
}
/// Reads all of a launch's arguments. Of a graph's launches each has its own, and no cache has seen
/// them: fetched one after another when they are wanted, they cost more than a small message.
template <class Work>
CCL_HD void fetch([[maybe_unused]] const Work& work) {
  NV_IF_TARGET(NV_IS_DEVICE, ({
                 const auto* const word = reinterpret_cast<const unsigned*>(&work);
                 CCL_UNROLL for (int i = 0; i < int(sizeof(Work) / 4); i += 16) ptx::use(word[i]);
               }))
}
}  // namespace detail

/// One launch of an exchange over a peer view, as an executor runs it: `Algo::run(exchange)`, and
/// the count of its messages.
template <class Algo, template <class> class Exchange>
struct PeerExchangeBody {
  using Work = PeerExchangeWork;
  static constexpr int max_lanes = 512;
  const Work& work;

  template <LaneGroup Group>
  CCL_HD Word operator()(Group group, int channel) const {
    detail::fetch(work);  // while the launch ahead runs
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
  /// had no part. Copies are equal between launches; each is one lane's. Nobody waits for a load: a
  /// crew of one warp has all copies to count in, and loads took it longer than its message.
  CCL_HD void end(Word, int crew, int lane, int lanes) const {
    constexpr int words = PeerExchangeWork::state_words;
    CCL_ROLL for (int w = 0; w < words; ++w) {
      const int p = w % PeerExchangeWork::most_ranks;
      const bool sent = w < PeerExchangeWork::most_ranks;
      if (p == work.peers.rank || (sent ? work.out : work.in)[p].bytes == 0) continue;
      Word* const counts = work.state.copies + w;
      CCL_ROLL for (int i = crew + lane * work.crews; i < work.state.count;
                    i += lanes * work.crews) {
        detail::count_one(counts + i * words);
      }
    }
  }
};

}  // namespace ccl
