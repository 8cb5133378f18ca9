#pragma once

#include <ccl/detail/base/bytes.hpp>
#include <ccl/types/plan.hpp>
#include <ccl/types/word.hpp>

namespace ccl::detail {

/// Channels of a launch on a GPU, and the blocks that run them. The launch, the chooser and the
/// simulator ask the functions below.
struct LaunchShape {
  int channels = 1, blocks = 1;
};

/// Lanes of the group that works on a channel on a GPU. With flags, the lanes of a warp do not wait
/// for each other.
constexpr int group_lanes(bool carries_flags) {
  return carries_flags ? 32 : 128;
}
/// Groups that share a block although more blocks are free. A block of up to 4 warps starts sooner
/// than more blocks do.
constexpr int groups_together(int lanes) {
  return lanes > 32 ? 1 : 4;
}

/// Returns the minimum bytes of a channel on which `lanes` lanes work. Measured on H200: 1 KiB with
/// flags, and 32 bytes for each lane without.
constexpr Index channel_worth(int lanes, Index channel_bytes) {
  const Index alone = lanes == 32 ? 1024 : Index{32} * lanes;
  return alone < channel_bytes ? channel_bytes : alone;
}

/// Returns the shape of `groups` groups of `lanes` lanes. More groups than `groups_together` share
/// a block if there are more of them than blocks.
constexpr LaunchShape launch_shape(Index groups, int lanes, int max_lanes, int max_blocks) {
  const int most = max_lanes / lanes, together = groups_together(lanes);
  Index blocks = div_up<Index>(groups, most < together ? most : together);
  blocks = blocks < max_blocks ? blocks : max_blocks;
  if (blocks * most < groups) groups = blocks * most;
  return {int(groups), int(blocks)};
}

/// Returns the shape of a message of `bytes` on up to `channels` channels.
constexpr LaunchShape launch_shape(Index bytes, int channels, Index channel_bytes, int lanes,
                                   int max_lanes, int max_blocks) {
  const Index use = div_up(bytes, channel_worth(lanes, channel_bytes));
  return launch_shape(use < 1 ? 1 : use < channels ? use : channels, lanes, max_lanes, max_blocks);
}

}  // namespace ccl::detail
