#pragma once

#include <ccl/detail/lanes/peer_view.hpp>
#include <ccl/types/macros.hpp>

CCL_ANY_SPACE_BEGIN

namespace ccl::detail {

/// Body with an epilogue per block. A block is a set of groups that end together: a block of a GPU,
/// one group on CPUs. The groups of block i of n have the channels i, i + n, ...
///
/// `body(group, channel)` returns the first argument of `end(left, block, lane, lanes)`, which all
/// lanes call after every group of the block has returned. Every group has a channel.
template <class Body>
concept HasBlockEpilogue = requires(const Body body, Word left) { body.end(left, 0, 0, 1); };

/// Calls `f(i)` for the copies of blocks that this launch does not have. The lanes of the block
/// share them. No lane reads these copies before the next launch, so a group may call it before it
/// waits for a peer.
template <class F>
CCL_HD void for_absent_blocks(int block, int blocks, int copies, int lane, int lanes, F f) {
  CCL_ROLL for (int i = block + blocks * (1 + lane); i < copies; i += blocks * lanes) f(i);
}
/// Stores the epoch of this launch into the copy of this block and those of absent blocks. All
/// lanes of the block. `left` is the epoch times 2, plus 1 if the latter are stored already.
CCL_HD void count_at_end(const Epoch& epoch, Word left, int block, int blocks, int lane,
                         int lanes) {
  const int last = (left & 1) != 0 && block < epoch.count ? block + 1 : epoch.count;
  CCL_ROLL for (int i = block + lane * blocks; i < last; i += lanes * blocks) {
    epoch.copies[i] = left >> 1;
  }
}

}  // namespace ccl::detail

CCL_ANY_SPACE_END
