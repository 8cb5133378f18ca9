#include "traced_calls.hpp"

#include <algorithm>

namespace ccl::perf {
namespace {

void earliest(Word& at, Word other) {
  if (other != 0 && (at == 0 || other < at)) at = other;
}

/// Adds the phases of a channel.
void add(TracedCall& to, const LanePhases& of) {
  earliest(to.phases.begun_ns, of.begun_ns);
  earliest(to.phases.ready_ns, of.ready_ns);
  earliest(to.phases.first_data_ns, of.first_data_ns);
  to.phases.last_data_ns = std::max(to.phases.last_data_ns, of.last_data_ns);
  to.phases.ended_ns = std::max(to.phases.ended_ns, of.ended_ns);
  ++to.channels;
}

}  // namespace

std::vector<TracedCall> traced_calls(const FlightRecord& record, std::string_view name) {
  std::vector<TracedCall> calls;
  for (const Operation& op : record.status.operations) {
    if (!std::string_view{op.what}.starts_with(name)) continue;
    TracedCall& call = calls.emplace_back(TracedCall{op, {}, 0});
    for (const LanePhases& of : record.phases) {
      if (of.composition == op.composition && of.call == op.call) add(call, of);
    }
  }
  return calls;
}

PartTimes parts_of(const TracedCall& of, long long late_ns) {
  const Word ends[part_count] = {of.phases.begun_ns, of.phases.ready_ns, of.phases.first_data_ns,
                                 of.phases.last_data_ns, of.phases.ended_ns};
  PartTimes us{};
  Word at = of.op.queued_ns;
  for (int n = 0; n < part_count; ++n) {
    const Word end = ends[n] == 0 ? 0 : ends[n] + Word(late_ns);
    if (end <= at) continue;
    us[std::size_t(n)] = double(end - at) / 1e3;
    at = end;
  }
  return us;
}

}  // namespace ccl::perf
