#pragma once

#include <ccl/detail/lanes/peer_view.hpp>

namespace ccl::detail {

/// A body may have a last word. Groups that end together are a crew: a block on a GPU, a group on
/// CPUs; the groups of crew i of n are channels i, i + n, ... `body(group, channel)` returns what
/// `end(left, crew, lane, lanes)` is given once every group of the crew is through, on all lanes of
/// the crew. Every group of such a launch has a channel.
template <class Body>
concept EndsWithCrew = requires(const Body body, Word left) {
  body.end(left, 0, 0, 1);
};

/// Where every crew that a launch could have keeps a copy: `f(i)` for those of crews that this
/// launch of `crews` does not have, dealt out among the lanes of crew `crew`. Nobody reads these
/// before the next launch: a group that is about to wait for a peer has the time.
template <class F>
CCL_HD void for_absent_crews(int crew, int crews, int copies, int lane, int lanes, F f) {
  CCL_ROLL for (int i = crew + crews * (1 + lane); i < copies; i += crews * lanes) f(i);
}
/// All lanes of a crew: the epoch of this launch into its copy and those of crews without a part.
/// `left` is the epoch and, lowest, whether the latter have been seen to.
CCL_HD void count_at_end(const Epoch& epoch, Word left, int crew, int crews, int lane, int lanes) {
  const int last = (left & 1) != 0 && crew < epoch.count ? crew + 1 : epoch.count;
  CCL_ROLL for (int i = crew + lane * crews; i < last; i += lanes * crews) {
    epoch.copies[i] = left >> 1;
  }
}

}  // namespace ccl::detail
