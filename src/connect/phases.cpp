#include <ccl/detail/lanes/host_memory.hpp>
#include <ccl/detail/runtime/connections.hpp>
#include <ccl/detail/runtime/settings.hpp>

#include "comm/state.hpp"
#include "connect/device_state.hpp"

namespace ccl::detail {

// CPU lanes note phases if a setting or the composition asks for them. Kernels have the code only
// if the composition asks.
Result<void> Connections::note_phases() {
  CommState& state = *Access::state(comm_);
  if (device_ != nullptr) {
    if (!needs_.notes_phases) return {};
    const Gpu::Current current{*state.device.gpu};
    CCL_TRY(device_->phases, Pinned::take(state.device.gpu->driver(), sizeof(PhaseLog)));
    calls_.watch.phases = static_cast<PhaseLog*>(device_->phases.at());
    return {};
  }
  CCL_TRY(const bool wanted, setting_flag("TRACE_PHASES"));
  if (!wanted && !needs_.notes_phases) return {};
  calls_.phases = std::make_unique<PhaseLog>();
  calls_.watch.phases = calls_.phases.get();
  return {};
}

std::vector<ChannelPhases> Connections::phases() const {
  std::vector<ChannelPhases> all;
  const PhaseLog* const log = calls_.watch.phases;
  if (log == nullptr) return all;
  const auto read = [](const Word& at) { return HostMemory::load_relaxed(&at); };
  for (const auto& launch : log->times) {
    for (int channel = 0; channel < PhaseLog::channels; ++channel) {
      const PhaseTimes& at = launch[channel];
      const PhaseTimes times{read(at.ticket),     read(at.begun),     read(at.ready),
                             read(at.first_data), read(at.last_data), read(at.ended)};
      // A launch that begins meanwhile clears the entry.
      const bool whole = times.ticket != 0 && times.begun != 0 && times.ended >= times.begun &&
                         (times.ready == 0 || times.ready >= times.begun) &&
                         times.last_data >= times.first_data && read(at.ticket) == times.ticket;
      if (whole) all.push_back({channel, times});
    }
  }
  return all;
}

}  // namespace ccl::detail
