#include "comm/observe/lane_phases.hpp"

#include <ccl/detail/base/cpu.hpp>
#include <ccl/detail/runtime/connections.hpp>

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include "comm/state.hpp"

namespace ccl::detail {
namespace {

/// Phases of an operation that the flight recorder still holds, by the clock of the lanes.
struct KnownPhases {
  Operation op;
  ChannelPhases phases;
};

std::vector<KnownPhases> known_phases(CommState& state) {
  std::vector<KnownPhases> all;
  const FlightRecorder* const recorder = state.observers.recorder();
  if (recorder == nullptr) return all;
  const auto lock = state.observers.lock_compositions();
  for (const Connections* one : state.observers.compositions()) {
    for (const ChannelPhases& phases : one->phases()) {
      Operation op;
      if (recorder->read(phases.times.ticket, op)) all.push_back({op, phases});
    }
  }
  return all;
}

LanePhases shifted(const KnownPhases& of, long long by) {
  const auto at = [by](Word ns) { return ns == 0 ? 0 : Word(static_cast<long long>(ns) + by); };
  const PhaseTimes& times = of.phases.times;
  LanePhases phases;
  phases.number = of.op.number;
  phases.composition = of.op.composition;
  phases.call = of.op.call;
  phases.channel = of.phases.channel;
  phases.begun_ns = at(times.begun);
  phases.ready_ns = at(times.ready);
  phases.first_data_ns = at(times.first_data);
  phases.last_data_ns = at(times.last_data);
  phases.ended_ns = at(times.ended);
  return phases;
}

}  // namespace

long long system_clock_offset() {
  using namespace std::chrono;
  const auto system = system_clock::now().time_since_epoch();
  return duration_cast<nanoseconds>(system).count() - static_cast<long long>(steady_ns());
}

long long gpu_clock_offset(const std::vector<PhaseClock>& pairs) {
  long long most = std::numeric_limits<long long>::min();
  for (const PhaseClock& of : pairs) {
    most = std::max(most, static_cast<long long>(of.queued_ns - of.begun_ns));
  }
  return pairs.empty() ? 0 : most;
}

AlignedPhases lane_phases(CommState& state) {
  const std::vector<KnownPhases> known = known_phases(state);
  if (known.empty()) return {};
  long long offset = 0;
  if (state.device.gpu == nullptr) {
    offset = system_clock_offset();
  } else {
    std::vector<PhaseClock> pairs;
    for (const KnownPhases& of : known) pairs.push_back({of.op.queued_ns, of.phases.times.begun});
    offset = gpu_clock_offset(pairs);
  }
  std::vector<LanePhases> all;
  for (const KnownPhases& of : known) all.push_back(shifted(of, offset));
  std::ranges::sort(all, [](const LanePhases& a, const LanePhases& b) {
    return std::pair{a.begun_ns, a.channel} < std::pair{b.begun_ns, b.channel};
  });
  return {std::move(all), offset};
}

}  // namespace ccl::detail
