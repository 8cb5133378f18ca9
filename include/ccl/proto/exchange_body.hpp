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
CCL_HD int lowest_bit(unsigned bits) {
  NV_IF_ELSE_TARGET(NV_IS_DEVICE, (return __ffs(int(bits)) - 1;), (return __builtin_ctz(bits);))
}
/// All lanes of a crew: counts the messages of these words in their copy of the state and in those
/// of crews that had no part. Copies are equal between launches; each is one lane's. Nobody waits
/// for a load: a crew of one warp has all copies to count in, and loads took it longer than its
/// message.
template <class Work>
CCL_HD void count_messages(const Work& work, unsigned words, int crew, int lane, int lanes) {
  for (unsigned left = words; left != 0; left &= left - 1) {
    Word* const counts = work.state.copies + lowest_bit(left) * work.state.count;
    CCL_ROLL for (int i = crew + lane * work.crews; i < work.state.count; i += lanes * work.crews) {
      count_one(counts + i);
    }
  }
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
    Exchange<Group> exchange{group, work, channel};
    Algo::run(exchange);
    return 0;
  }
  /// On the host, when all else is set.
  template <LaneGroup Group>
  static void prepare(Work& work) {
    constexpr int most = PeerExchangeWork::most_ranks;
    work.counts = 0;
    work.to = work.from = {};
    for (int k = 0; k < work.peers.ranks; ++k) {
      const int p = (work.peers.rank + k) % work.peers.ranks;
      const int behind = (work.peers.rank + work.peers.ranks - k) % work.peers.ranks;
      if (work.out[p].bytes > 0) work.to.rank[work.to.count++] = p;
      if (k == 0) continue;
      if (work.in[behind].bytes > 0) work.from.rank[work.from.count++] = behind;
      if (work.out[p].bytes > 0) work.counts |= 1u << p;
      if (work.in[p].bytes > 0) work.counts |= 1u << (most + p);
    }
    if constexpr (requires { Exchange<Group>::deal(work); }) Exchange<Group>::deal(work);
  }
  CCL_HD void end(Word, int crew, int lane, int lanes) const {
    detail::count_messages(work, work.counts, crew, lane, lanes);
  }
};

}  // namespace ccl
