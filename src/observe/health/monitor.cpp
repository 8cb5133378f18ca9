#include "observe/health/monitor.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <string_view>

#include "observe/health/render.hpp"

namespace ccl::detail::health {

std::string event_line(const Event& event, Format format) {
  if (format == Format::text) {
    const std::string gpus = event.devices.empty()
                                 ? "no GPU"
                                 : fmt::format("GPU{} {}", event.devices.size() == 1 ? "" : "s",
                                               fmt::join(event.devices, ","));
    return fmt::format("[{}] {}: Process {} on node {} managing {} {}", local_time(event.at_ns),
                       event.name, event.pid, event.address, gpus, event.details);
  }
  using Json = nlohmann::ordered_json;
  const Json json{{"timestamp", local_time(event.at_ns)},
                  {"group", event.group == lifecycle ? "LIFECYCLE" : "TRACE"},
                  {"event", event.name},
                  {"peer",
                   {{"host", event.address},
                    {"pid", event.pid},
                    {"cuda_devs", event.devices},
                    {"nvml_devs", event.devices}}},
                  {"details", event.details}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::vector<Event> Monitor::compare(const Snapshot& now) {
  std::map<std::pair<std::string, int>, Process> seen;
  for (const CommView& of : now.communicators) {
    for (const RankView& rank : of.ranks) {
      Process& process = seen[{rank.address, rank.pid}];
      const auto before = known_.find({rank.address, rank.pid});
      // A rank that nobody asked says nothing new.
      const State unasked = before == known_.end() ? State::answers : before->second.state;
      const State state = rank.status.answered ? State::answers
                          : rank.dead          ? State::dead
                          : of.asked           ? State::silent
                                               : unasked;
      process.state = std::max(process.state, state);
      const auto at = std::ranges::find(process.devices, rank.device);
      if (rank.device >= 0 && at == process.devices.end()) process.devices.push_back(rank.device);
    }
  }
  std::vector<Event> events;
  for (const auto& [place, process] : seen) {
    const auto known = known_.find(place);
    const auto add = [&](EventGroup group, const char* name, const char* details) {
      events.push_back(
          {group, name, place.first, place.second, process.devices, details, now.taken_ns});
    };
    const bool is_new = known == known_.end();
    if (is_new) add(lifecycle, "PEER_NEW", "has a communicator with this process");
    const State before = is_new ? State::answers : known->second.state;
    if (process.state == before) continue;
    if (process.state == State::dead) add(lifecycle, "PEER_DEAD", "its connections have ended");
    if (process.state == State::silent) add(trace, "PEER_UNRESPONSIVE", "does not answer");
    if (process.state == State::answers) add(trace, "PEER_RECOVERED", "answers again");
  }
  known_ = std::move(seen);
  return events;
}

}  // namespace ccl::detail::health
