#include <ccl/detail/lanes/host_memory.hpp>
#include <ccl/detail/runtime/connections.hpp>

#include <algorithm>

namespace ccl::detail {

std::optional<WireSteps> read_steps(const Wire& wire, int device, int slice_steps) {
  // A GPU's own counts are in its memory. Those that it shares with a proxy the host can read.
  if ((device >= 0 && !wire.proxied) || wire.slots == nullptr) return {};
  const bool own = device < 0;
  const auto read = [](const Word* at) { return at == nullptr ? 0 : HostMemory::load_relaxed(at); };
  WireSteps steps;
  // Some wires do not count posted steps, and the sender's count lags while it works.
  steps.filled = std::max(read(wire.posted), own ? read(wire.sent) : 0);
  steps.drained = std::max(read(wire.drained), own ? read(wire.received) : 0);
  steps.filled = std::max(steps.filled, steps.drained);
  for (int n = 0; own && n < wire.short_slot_count; n += slice_steps) {
    if (!wire.short_slot(steps.filled)->contains<HostMemory>(steps.filled)) break;
    steps.filled += Word(slice_steps);
  }
  return steps;
}

std::vector<WireSteps> Connections::steps() const {
  std::vector<WireSteps> all;
  const std::lock_guard lock{wires_mutex_};
  for (const auto* wires : {&rows_.in(), &rows_.out()}) {
    for (std::size_t i = 0; i < wires->size(); ++i) {
      auto steps = read_steps((*wires)[i], comm_.device(), plan_.slice_steps);
      if (!steps) continue;
      steps->peer = rows_.peer_of(i);
      steps->channel = rows_.channel_of(i);
      steps->sends = wires == &rows_.out();
      steps->proxied = (*wires)[i].proxied;
      steps->composition = number_;
      all.push_back(*steps);
    }
  }
  return all;
}

}  // namespace ccl::detail
