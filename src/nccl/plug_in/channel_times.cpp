#include "nccl/plug_in/channel_times.hpp"

#include <ccl/detail/runtime/connections.hpp>

#include <algorithm>

#include "comm/state.hpp"

namespace ccl::detail::nccl {

std::vector<ChannelTimes> channel_times(const Communicator& comm, Word before, int channels) {
  std::vector<ChannelTimes> all(std::size_t(std::max(channels, 0)));
  Observers& observers = Access::state(comm)->observers;
  const auto lock = observers.lock_compositions();
  for (const Connections* const one : observers.compositions()) {
    for (const ChannelPhases& phases : one->phases()) {
      if (phases.times.ticket <= before || phases.channel >= channels) continue;
      ChannelTimes& of = all[std::size_t(phases.channel)];
      of.begun = of.begun == 0 ? phases.times.begun : std::min(of.begun, phases.times.begun);
      of.ended = std::max(of.ended, phases.times.ended);
    }
  }
  return all;
}

}  // namespace ccl::detail::nccl
