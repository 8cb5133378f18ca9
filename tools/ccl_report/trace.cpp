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
