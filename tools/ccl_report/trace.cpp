#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>
#include <set>

#include "timeline.hpp"

namespace report {
namespace {

using Json = nlohmann::ordered_json;

Json arguments(const ccl::Operation& op) {
  Json all{{"number", op.number}, {"state", ccl::name(op.state)}};
  if (op.type[0] != 0) all["type"] = op.type;
  if (op.count >= 0) all["count"] = op.count;
  if (op.redop[0] != 0) all["reduction"] = op.redop;
  if (op.root >= 0) all["root"] = op.root;
  return all;
}

Json event(const Row& row, int thread, std::string_view name, double from_us, double to_us,
           Json all) {
  return {{"ph", "X"},
          {"pid", row.rank},
          {"tid", thread},
          {"name", name},
          {"ts", from_us},
          {"dur", std::max(to_us - from_us, 0.0)},
          {"args", std::move(all)}};
}

Json named(const char* what, const Row& row, int thread, const std::string& name) {
  return {
      {"ph", "M"}, {"name", what}, {"pid", row.rank}, {"tid", thread}, {"args", {{"name", name}}}};
}

constexpr int channels_from = 1 << 16;  // thread numbers below are those of communicators
constexpr int max_channels = 64;

/// Adds the phases of the lanes: a thread for each channel of the communicator.
void add_phases(Json& events, const Row& row, int thread, const std::string& name) {
  std::set<int> named_channels;
  for (const Phases& of : row.phases) {
    const int channel = std::clamp(of.of.channel, 0, max_channels - 1);
    const int at = channels_from + thread * max_channels + channel;
    if (named_channels.insert(channel).second) {
      events.push_back(named("thread_name", row, at, fmt::format("{}, channel {}", name, channel)));
    }
    const Json all{{"number", of.of.number}, {"call", of.of.call}, {"channel", of.of.channel}};
    const auto add = [&](const char* phase, double from_us, double to_us) {
      if (to_us > from_us) events.push_back(event(row, at, phase, from_us, to_us, all));
    };
    add("waits for the launch before", of.begun_us, of.ready_us);
    add("waits for the first data", of.ready_us, of.first_data_us);
    add("moves data", of.first_data_us, of.last_data_us);
    add("after the last data", of.last_data_us, of.ended_us);
  }
}

}  // namespace

std::string trace_of(const std::vector<Row>& rows) {
  Json events = Json::array();
  std::map<std::string, int> threads;  // of communicators: two each, for calls and for what waits
  std::set<int> ranks;
  for (const Row& row : rows) {
    const int thread =
        threads.try_emplace(row.communicator, 2 * int(threads.size()) + 1).first->second;
    if (ranks.insert(row.rank).second) {
      events.push_back(named("process_name", row, thread,
                             fmt::format("rank {} on {}, pid {}", row.rank, row.host, row.pid)));
    }
    const std::string name = row.name.empty() ? row.communicator : row.name;
    events.push_back(named("thread_name", row, thread, name));
    events.push_back(named("thread_name", row, thread + 1, name + ", queued"));
    add_phases(events, row, thread, name);
    for (const Slice& slice : row.slices) {
      const bool begun = slice.operation.started_ns != 0;
      const double waits_to = begun ? slice.started_us : slice.ended_us;
      if (waits_to > slice.queued_us) {
        events.push_back(event(row, thread + 1, slice.operation.what, slice.queued_us, waits_to,
                               arguments(slice.operation)));
      }
      if (!begun) continue;
      events.push_back(event(row, thread, slice.operation.what, slice.started_us, slice.ended_us,
                             arguments(slice.operation)));
    }
  }
  return Json{{"displayTimeUnit", "ns"}, {"traceEvents", std::move(events)}}.dump(
             -1, ' ', false, Json::error_handler_t::replace) +
         "\n";
}

}  // namespace report
