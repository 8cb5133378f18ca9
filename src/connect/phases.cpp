#include <ccl/detail/lanes/host_memory.hpp>
#include <ccl/detail/runtime/connections.hpp>
#include <ccl/detail/runtime/settings.hpp>

#include <algorithm>

#include "base/profiler_mask.hpp"
#include "comm/state.hpp"
#include "connect/device_state.hpp"

namespace ccl::detail {
namespace {
PhaseTimes read(const PhaseTimes& from) {
  const auto word = [](const Word& at) { return HostMemory::load_relaxed(&at); };
  PhaseTimes times{word(from.ticket),     word(from.begun),     word(from.ready),
                   word(from.first_data), word(from.last_data), word(from.ended)};
  // A launch that begins meanwhile clears the entry.
  const bool whole = times.begun != 0 && times.ended >= times.begun &&
                     (times.ready == 0 || times.ready >= times.begun) &&
                     times.last_data >= times.first_data && word(from.ticket) == times.ticket;
  if (!whole) times.ticket = 0;
  return times;
}

/// Adds the times of the latest launch of a call that is cut into several.
void add_further(PhaseTimes& times, const PhaseTimes& further) {
  const bool of_call = further.ticket == times.ticket && further.begun >= times.begun;
  if (!of_call) return;
  if (times.first_data == 0) times.first_data = further.first_data;
  times.last_data = std::max(times.last_data, further.last_data);
  times.ended = std::max(times.ended, further.ended);
}
}  // namespace

// CPU lanes note phases if a setting, the composition or a profiler plug-in asks for them. Kernels
// have the code only if the composition asks.
Result<void> Connections::note_phases() {
  CommState& state = *Access::state(comm_);
  if (device_ != nullptr) {
    if (!needs_.notes_phases) return {};
    const Gpu::Current current{*state.device.gpu};
    CCL_TRY(device_->phases, Pinned::take(state.device.gpu->driver(), 2 * sizeof(PhaseLog)));
    calls_.watch.phases = static_cast<PhaseLog*>(device_->phases.at());
    return {};
  }
  CCL_TRY(const bool wanted, setting_flag("TRACE_PHASES"));
  if (!wanted && !needs_.notes_phases && !profiler_wants_channels()) return {};
  calls_.phases = std::make_unique<PhaseLog>();
  calls_.watch.phases = calls_.phases.get();
  return {};
}

std::vector<ChannelPhases> Connections::phases() const {
  std::vector<ChannelPhases> all;
  const PhaseLog* const log = calls_.watch.phases;
  if (log == nullptr) return all;
  for (int launch = 0; launch < PhaseLog::launches; ++launch) {
    for (int channel = 0; channel < PhaseLog::channels; ++channel) {
      PhaseTimes times = read(log->times[launch][channel]);
      if (times.ticket == 0) continue;
      if (device_ != nullptr) add_further(times, read(log[1].times[launch][channel]));
      all.push_back({channel, times});
    }
  }
  return all;
}

}  // namespace ccl::detail
