#pragma once

#include <ccl/detail/lanes/peer_view.hpp>

namespace ccl::detail {

/// A body may have a last word. Groups that end together are a crew: a block on a GPU, a group on
/// CPUs; the groups of crew i of n are channels i, i + n, ... `body(group, channel)` returns what
/// `end(left, block, lane, lanes)` is given once every group of the crew is through, on all lanes of
/// the crew. Every group of such a launch has a channel.
template <class Body>
concept HasBlockEpilogue = requires(const Body body, Word left) {
  body.end(left, 0, 0, 1);
};

/// Where every crew that a launch could have keeps a copy: `f(i)` for those of crews that this
/// launch of `blocks` does not have, dealt out among the lanes of crew `block`. Nobody reads these
/// before the next launch: a group that is about to wait for a peer has the time.
template <class F>
CCL_HD void for_absent_blocks(int block, int blocks, int copies, int lane, int lanes, F f) {
  CCL_ROLL for (int i = block + blocks * (1 + lane); i < copies; i += blocks * lanes) f(i);
}
/// All lanes of a crew: the epoch of this launch into its copy and those of crews without a part.
/// `left` is the epoch and, lowest, whether the latter have been seen to.
CCL_HD void count_at_end(const Epoch& epoch, Word left, int block, int blocks, int lane, int lanes) {
  const int last = (left & 1) != 0 && block < epoch.count ? block + 1 : epoch.count;
  CCL_ROLL for (int i = block + lane * blocks; i < last; i += lanes * blocks) {
    epoch.copies[i] = left >> 1;
  }
}

}  // namespace ccl::detail
