#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "timeline.hpp"

namespace report {
namespace {

using Json = nlohmann::ordered_json;

/// Slices that lie within each other or side by side, from `from_us` to `to_us`.
struct Block {
  double from_us = 0, to_us = 0;
  std::vector<Json> slices;  // an outer one before those within it
};

Json slice(const char* category, std::string_view name, double from_us, double to_us, Json all) {
  return {{"ph", "X"},
          {"name", name},
          {"cat", category},
          {"ts", from_us},
          {"dur", std::max(to_us - from_us, 0.0)},
          {"args", std::move(all)}};
}

Json arguments(const ccl::Operation& op) {
  Json all{{"number", op.number}, {"state", ccl::name(op.state)}};
  if (op.type[0] != 0) all["type"] = op.type;
  if (op.count >= 0) all["count"] = op.count;
  if (op.redop[0] != 0) all["reduction"] = op.redop;
  if (op.root >= 0) all["root"] = op.root;
  return all;
}

/// Writer of events. Slices of a track that overlap get tracks of their own, because readers expect
/// that those of one track lie within each other.
class Tracks {
 public:
  /// Begins a process. Tracks that follow belong to it.
  void begin_process(const std::string& name, int order) {
    ++process_;
    threads_ = 0;
    events_.push_back(about("process_name", 0, "name", name));
    events_.push_back(about("process_sort_index", 0, "sort_index", order));
  }
  void add(const std::string& name, std::vector<Block> blocks) {
    std::ranges::stable_sort(blocks, {}, &Block::from_us);
    std::vector<double> ends;  // of each track so far
    const int first = threads_ + 1;
    for (Block& block : blocks) {
      const auto free =
          std::ranges::find_if(ends, [&](double end) { return end <= block.from_us; });
      const int n = int(free - ends.begin());
      if (free == ends.end()) {
        ends.push_back(block.to_us);
        name_track(first + n, n == 0 ? name : fmt::format("{} ({})", name, n + 1));
      } else {
        *free = block.to_us;
      }
      for (Json& one : block.slices) {
        one["pid"] = process_;
        one["tid"] = first + n;
        events_.push_back(std::move(one));
      }
    }
    threads_ += int(ends.size());
  }
  Json take() { return std::move(events_); }

 private:
  void name_track(int thread, const std::string& name) {
    events_.push_back(about("thread_name", thread, "name", name));
    events_.push_back(about("thread_sort_index", thread, "sort_index", thread));
  }
  template <class T>
  Json about(const char* what, int thread, const char* member, const T& value) const {
    return {{"ph", "M"},
            {"name", what},
            {"pid", process_},
            {"tid", thread},
            {"args", {{member, value}}}};
  }

  Json events_ = Json::array();
  int process_ = 0, threads_ = 0;
};

void add_operations(Tracks& tracks, const Row& row) {
  std::vector<Block> runs, waits;
  for (const Slice& of : row.slices) {
    const ccl::Operation& op = of.operation;
    const bool begun = op.started_ns != 0;
    const double waits_to = begun ? of.started_us : of.ended_us;
    if (waits_to > of.queued_us) {
      waits.push_back({of.queued_us,
                       waits_to,
                       {slice("queued", op.what, of.queued_us, waits_to, arguments(op))}});
    }
    if (!begun) continue;
    const char* const category = op.ended_ns == 0 ? "not ended" : "operation";
    runs.push_back({of.started_us,
                    of.ended_us,
                    {slice(category, op.what, of.started_us, of.ended_us, arguments(op))}});
  }
  tracks.add(row.label(), std::move(runs));
  tracks.add(row.label() + ", queued", std::move(waits));
}

/// Name of the operation to which phases belong.
std::string_view operation_of(const Row& row, const ccl::LanePhases& of) {
  for (const Slice& slice : row.slices) {
    const ccl::Operation& op = slice.operation;
    if (op.call == of.call && op.composition == of.composition) return op.what;
  }
  return "launch";
}

/// Adds the phases of the lanes: a track for each channel.
void add_phases(Tracks& tracks, const Row& row) {
  std::map<int, std::vector<Block>> channels;
  for (const Phases& of : row.phases) {
    const Json all{{"number", of.of.number}, {"call", of.of.call}, {"channel", of.of.channel}};
    Block block{of.begun_us, of.ended_us, {}};
    block.slices.push_back(
        slice("launch", operation_of(row, of.of), of.begun_us, of.ended_us, all));
    const auto add = [&](const char* phase, double from_us, double to_us) {
      if (to_us > from_us) block.slices.push_back(slice("phase", phase, from_us, to_us, all));
    };
    add("waits for the launch before", of.begun_us, of.ready_us);
    add("waits for the first data", of.ready_us, of.first_data_us);
    add("moves data", of.first_data_us, of.last_data_us);
    add("after the last data", of.last_data_us, of.ended_us);
    channels[of.of.channel].push_back(std::move(block));
  }
  for (auto& [channel, blocks] : channels) {
    tracks.add(fmt::format("{}, channel {}", row.label(), channel), std::move(blocks));
  }
}

/// Both ends of a step: communicator, sender, receiver, composition, channel, stream, step.
using Step = std::tuple<std::string, int, int, int, int, int, ccl::Word>;
Step step_of(const Row& row, const ccl::Transfer& of) {
  return {row.communicator,
          of.sends ? row.rank : of.peer,
          of.sends ? of.peer : row.rank,
          of.composition,
          of.channel,
          of.stream,
          of.step};
}

/// Steps that both ends have noted, by the number of the arrow between the two.
std::map<Step, int> arrows_of(const std::vector<Row>& rows) {
  std::set<Step> sent;
  std::map<Step, int> arrows;
  for (const bool sends : {true, false}) {
    for (const Row& row : rows) {
      for (const Move& of : row.moves) {
        if (of.of.sends != sends) continue;
        Step step = step_of(row, of.of);
        if (sends) {
          sent.insert(std::move(step));
        } else if (sent.count(step) != 0) {
          arrows.try_emplace(std::move(step), int(arrows.size()) + 1);
        }
      }
    }
  }
  return arrows;
}

/// Adds the steps over networks: tracks for each network and direction.
void add_moves(Tracks& tracks, const Row& row, const std::map<Step, int>& arrows) {
  std::map<std::pair<bool, std::string>, std::vector<Block>> networks;
  for (const Move& of : row.moves) {
    const ccl::Transfer& one = of.of;
    Json all{{"bytes", one.bytes},
             {"peer", one.peer},
             {"network", one.network},
             {"channel", one.channel},
             {"stream", one.stream},
             {"step", one.step},
             {"composition", one.composition}};
    const double us = of.end_us - of.begin_us;
    if (us > 0) all["GB/s"] = std::round(double(one.bytes) / us) / 1e3;
    Block block{of.posted_us, of.end_us, {}};
    if (of.begin_us > of.posted_us) {
      block.slices.push_back(slice("wait", fmt::format("waits to send to rank {}", one.peer),
                                   of.posted_us, of.begin_us, all));
    }
    const char* const category = one.sends ? "send" : "receive";
    block.slices.push_back(slice(category,
                                 fmt::format("{} rank {}", one.sends ? "to" : "from", one.peer),
                                 of.begin_us, of.end_us, std::move(all)));
    if (const auto arrow = arrows.find(step_of(row, one)); arrow != arrows.end()) {
      Json end{{"ph", one.sends ? "s" : "f"},
               {"name", "step"},
               {"cat", "step"},
               {"id", arrow->second},
               {"ts", of.begin_us}};
      if (!one.sends) end["bp"] = "e";
      block.slices.push_back(std::move(end));
    }
    networks[{!one.sends, one.network}].push_back(std::move(block));
  }
  for (auto& [which, blocks] : networks) {
    const auto& [receives, network] = which;
    tracks.add(fmt::format("{}, {} {}", row.label(), receives ? "receives over" : "sends over",
                           network.empty() ? "a network" : network),
               std::move(blocks));
  }
}

/// Rows of one process, or of one rank if ranks of a communicator share a process. They have the
/// rank of the largest communicator.
std::map<std::tuple<int, std::string, int>, std::vector<const Row*>> processes_of(
    const std::vector<Row>& rows) {
  using Process = std::pair<std::string, int>;
  std::map<std::pair<Process, std::string>, int> sharing;
  for (const Row& row : rows) ++sharing[{{row.host, row.pid}, row.communicator}];
  std::set<Process> shared;
  for (const auto& [which, ranks] : sharing) {
    if (ranks > 1) shared.insert(which.first);
  }
  std::map<std::tuple<std::string, int, int>, std::vector<const Row*>> groups;
  for (const Row& row : rows) {
    const bool apart = shared.count({row.host, row.pid}) != 0;
    groups[{row.host, row.pid, apart ? row.rank : -1}].push_back(&row);
  }
  std::map<std::tuple<int, std::string, int>, std::vector<const Row*>> all;
  for (auto& [which, of] : groups) {
    std::ranges::stable_sort(of, std::greater{}, [](const Row* row) { return row->ranks; });
    all[{of.front()->rank, of.front()->host, of.front()->pid}] = std::move(of);
  }
  return all;
}

}  // namespace

std::string trace_of(const std::vector<Row>& rows) {
  const auto arrows = arrows_of(rows);
  Tracks tracks;
  for (const auto& [which, of] : processes_of(rows)) {
    const auto& [rank, host, pid] = which;
    tracks.begin_process(fmt::format("rank {} on {}, pid {}", rank, host, pid), rank);
    for (const Row* row : of) {
      add_operations(tracks, *row);
      add_phases(tracks, *row);
      add_moves(tracks, *row, arrows);
    }
  }
  return Json{{"displayTimeUnit", "ns"}, {"traceEvents", tracks.take()}}.dump(
             -1, ' ', false, Json::error_handler_t::replace) +
         "\n";
}

}  // namespace report
