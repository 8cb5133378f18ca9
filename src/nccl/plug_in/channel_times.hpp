#pragma once

#include <ccl/comm/communicator.hpp>

#include <vector>

namespace ccl::detail::nccl {

/// Begin and end of the lanes of one channel, in ns by their clock. 0: they have noted none.
struct ChannelTimes {
  Word begun = 0, ended = 0;
};

/// Returns what the lanes of the first `channels` channels have noted of the operations after
/// `before`, a ticket of the flight recorder, which have ended.
std::vector<ChannelTimes> channel_times(const Communicator& comm, Word before, int channels);

}  // namespace ccl::detail::nccl
