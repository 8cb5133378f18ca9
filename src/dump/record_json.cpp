#include "dump/record_json.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <array>
#include <concepts>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

namespace ccl {

using namespace detail;

namespace {

using Json = nlohmann::ordered_json;
constexpr const char* format_name = "ccl flight record 1";
constexpr std::size_t max_items = std::size_t{1} << 20;  // CCL_FLIGHT_RECORDER_SIZE at most

constexpr int max_ranks = 1 << 20;

constexpr std::array states{OpState::queued, OpState::launched, OpState::running, OpState::done,
                            OpState::failed};

Json operation_json(const Operation& op) {
  return {{"number", op.number},
          {"what", op.what},
          {"type", op.type},
          {"redop", op.redop},
          {"count", op.count},
          {"root", op.root},
          {"composition", op.composition},
          {"call", op.call},
          {"state", name(op.state)},
          {"queued_ns", op.queued_ns},
          {"started_ns", op.started_ns},
          {"ended_ns", op.ended_ns}};
}

Json steps_json(const WireSteps& of) {
  return {{"peer", of.peer},      {"channel", of.channel}, {"sends", of.sends},
          {"filled", of.filled},  {"drained", of.drained}, {"composition", of.composition},
          {"proxied", of.proxied}};
}

Json phases_json(const LanePhases& of) {
  return {{"number", of.number},
          {"composition", of.composition},
          {"call", of.call},
          {"channel", of.channel},
          {"begun_ns", of.begun_ns},
          {"ready_ns", of.ready_ns},
          {"first_data_ns", of.first_data_ns},
          {"last_data_ns", of.last_data_ns},
          {"ended_ns", of.ended_ns}};
}

Json transfer_json(const Transfer& of) {
  return {{"sends", of.sends},     {"peer", of.peer},           {"composition", of.composition},
          {"channel", of.channel}, {"stream", of.stream},       {"step", of.step},
          {"bytes", of.bytes},     {"posted_ns", of.posted_ns}, {"begin_ns", of.begin_ns},
          {"end_ns", of.end_ns},   {"network", of.network}};
}

/// Reads the members of an object. Keeps the first thing that is wrong.
class Reader {
 public:
  explicit Reader(std::string& wrong) : wrong_{wrong} {}

  template <class T>
  void take(const Json& from, const char* key, T& into) {
    const Json* const found = member(from, key);
    if (found == nullptr || !reads(*found, into)) miss(key);
  }
  /// Reads an array of objects by `read`.
  template <class T, class Read>
  void take_all(const Json& from, const char* key, std::vector<T>& into, Read read) {
    const Json* const found = member(from, key);
    if (found == nullptr || !found->is_array() || found->size() > max_items) return miss(key);
    for (const Json& one : *found) read(*this, one, into.emplace_back());
  }

 private:
  /// Returns the member of an object, or null if there is none.
  static const Json* member(const Json& from, const char* key) {
    if (!from.is_object()) return nullptr;
    const auto found = from.find(key);
    return found == from.end() ? nullptr : &*found;
  }
  void miss(const char* key) {
    if (wrong_.empty()) wrong_ = fmt::format("\"{}\" is missing or of the wrong kind", key);
  }
  template <std::integral T>
  static bool reads(const Json& from, T& into) {
    if constexpr (std::same_as<T, bool>) {
      if (!from.is_boolean()) return false;
    } else {
      if (!from.is_number_integer()) return false;
      const bool fits = from.is_number_unsigned() ? std::in_range<T>(from.get<std::uint64_t>())
                                                  : std::in_range<T>(from.get<std::int64_t>());
      if (!fits) return false;
    }
    into = from.get<T>();
    return true;
  }
  static bool reads(const Json& from, double& into) {
    if (!from.is_number()) return false;
    into = from.get<double>();
    return true;
  }
  static bool reads(const Json& from, std::string& into) {
    if (!from.is_string()) return false;
    into = from.get<std::string>();
    return true;
  }
  template <std::size_t bytes>
  static bool reads(const Json& from, char (&into)[bytes]) {
    if (!from.is_string()) return false;
    const std::string& text = from.get_ref<const std::string&>();
    if (text.size() >= bytes) return false;
    std::memcpy(into, text.c_str(), text.size() + 1);
    return true;
  }
  static bool reads(const Json& from, OpState& into) {
    for (const OpState state : states) {
      if (from != name(state)) continue;
      into = state;
      return true;
    }
    return false;
  }

  std::string& wrong_;
};

void read_operation(Reader& reader, const Json& from, Operation& op) {
  reader.take(from, "number", op.number);
  reader.take(from, "what", op.what);
  reader.take(from, "type", op.type);
  reader.take(from, "redop", op.redop);
  reader.take(from, "count", op.count);
  reader.take(from, "root", op.root);
  reader.take(from, "composition", op.composition);
  reader.take(from, "call", op.call);
  reader.take(from, "state", op.state);
  reader.take(from, "queued_ns", op.queued_ns);
  reader.take(from, "started_ns", op.started_ns);
  reader.take(from, "ended_ns", op.ended_ns);
}

void read_steps(Reader& reader, const Json& from, WireSteps& steps) {
  reader.take(from, "peer", steps.peer);
  reader.take(from, "channel", steps.channel);
  reader.take(from, "sends", steps.sends);
  reader.take(from, "filled", steps.filled);
  reader.take(from, "drained", steps.drained);
  reader.take(from, "composition", steps.composition);
  reader.take(from, "proxied", steps.proxied);
}

void read_phases(Reader& reader, const Json& from, LanePhases& of) {
  reader.take(from, "number", of.number);
  reader.take(from, "composition", of.composition);
  reader.take(from, "call", of.call);
  reader.take(from, "channel", of.channel);
  reader.take(from, "begun_ns", of.begun_ns);
  reader.take(from, "ready_ns", of.ready_ns);
  reader.take(from, "first_data_ns", of.first_data_ns);
  reader.take(from, "last_data_ns", of.last_data_ns);
  reader.take(from, "ended_ns", of.ended_ns);
}

void read_transfer(Reader& reader, const Json& from, Transfer& of) {
  reader.take(from, "sends", of.sends);
  reader.take(from, "peer", of.peer);
  reader.take(from, "composition", of.composition);
  reader.take(from, "channel", of.channel);
  reader.take(from, "stream", of.stream);
  reader.take(from, "step", of.step);
  reader.take(from, "bytes", of.bytes);
  reader.take(from, "posted_ns", of.posted_ns);
  reader.take(from, "begin_ns", of.begin_ns);
  reader.take(from, "end_ns", of.end_ns);
  reader.take(from, "network", of.network);
}

FlightRecord read(const Json& from, std::string& wrong) {
  Reader reader{wrong};
  FlightRecord record;
  std::string format;
  reader.take(from, "format", format);
  if (wrong.empty() && format != format_name) {
    wrong = fmt::format("\"format\" is \"{}\", not \"{}\"", format, format_name);
  }
  if (!wrong.empty()) return record;
  reader.take(from, "communicator", record.communicator);
  reader.take(from, "name", record.name);
  reader.take(from, "ranks", record.ranks);
  reader.take(from, "failure", record.failure);
  RankStatus& status = record.status;
  status.answered = true;
  reader.take(from, "rank", status.rank);
  reader.take(from, "host", status.host);
  reader.take(from, "pid", status.pid);
  reader.take(from, "now_ns", status.now_ns);
  reader.take(from, "called", status.called);
  reader.take(from, "rendezvous", status.rendezvous);
  reader.take(from, "shortage", status.shortage);
  reader.take(from, "waits_peer", status.waits.peer);
  reader.take(from, "waits_step", status.waits.step);
  reader.take(from, "network_bytes", status.network_bytes);
  reader.take(from, "proxy_stuck_s", status.proxy_stuck_s);
  reader.take(from, "elsewhere", status.elsewhere.text);
  reader.take(from, "elsewhere_host", status.elsewhere.peer_host);
  reader.take(from, "elsewhere_pid", status.elsewhere.peer_pid);
  reader.take_all(from, "operations", status.operations, read_operation);
  reader.take_all(from, "steps", status.steps, read_steps);
  // Files of version 0.1.0 have none of these.
  if (from.is_object() && from.contains("phases")) {
    reader.take_all(from, "phases", record.phases, read_phases);
  }
  if (from.is_object() && from.contains("lane_clock_ns")) {
    reader.take(from, "lane_clock_ns", record.lane_clock_ns);
  }
  if (from.is_object() && from.contains("transfers")) {
    reader.take_all(from, "transfers", record.transfers, read_transfer);
  }
  if (!wrong.empty()) return record;
  const auto is_rank = [&](int rank) { return rank >= -1 && rank < record.ranks; };
  bool valid = record.ranks > 0 && record.ranks <= max_ranks && status.rank >= 0 &&
               is_rank(status.rank) && is_rank(status.waits.peer);
  for (const WireSteps& of : status.steps) valid = valid && is_rank(of.peer);
  for (const Transfer& of : record.transfers) valid = valid && is_rank(of.peer);
  if (!valid) wrong = fmt::format("it names ranks that are none of {}", record.ranks);
  return record;
}

}  // namespace

nlohmann::ordered_json detail::record_json(const FlightRecord& record) {
  const RankStatus& status = record.status;
  Json out{{"format", format_name},
           {"communicator", record.communicator},
           {"name", record.name},
           {"ranks", record.ranks},
           {"failure", record.failure},
           {"rank", status.rank},
           {"host", status.host},
           {"pid", status.pid},
           {"now_ns", status.now_ns},
           {"called", status.called},
           {"rendezvous", status.rendezvous},
           {"shortage", status.shortage},
           {"waits_peer", status.waits.peer},
           {"waits_step", status.waits.step},
           {"network_bytes", status.network_bytes},
           {"proxy_stuck_s", status.proxy_stuck_s},
           {"elsewhere", status.elsewhere.text},
           {"elsewhere_host", status.elsewhere.peer_host},
           {"elsewhere_pid", status.elsewhere.peer_pid}};
  Json& operations = out["operations"] = Json::array();
  for (const Operation& op : status.operations) operations.push_back(operation_json(op));
  Json& steps = out["steps"] = Json::array();
  for (const WireSteps& of : status.steps) steps.push_back(steps_json(of));
  Json& phases = out["phases"] = Json::array();
  for (const LanePhases& of : record.phases) phases.push_back(phases_json(of));
  out["lane_clock_ns"] = record.lane_clock_ns;
  Json& transfers = out["transfers"] = Json::array();
  for (const Transfer& of : record.transfers) transfers.push_back(transfer_json(of));
  return out;
}

Result<FlightRecord> read_flight_record(std::string_view json) {
  const Json file = Json::parse(json, nullptr, false);
  std::string wrong;
  if (file.is_discarded() || !file.is_object() || !file.contains("ccl")) {
    wrong = "it is no JSON object with a member \"ccl\"";
  }
  FlightRecord record;
  if (wrong.empty()) record = read(file["ccl"], wrong);
  if (wrong.empty()) return record;
  return fail(Errc::invalid_argument,
              fmt::format("this is no flight record of ccl ({}); name a file that "
                          "Communicator::dump has written",
                          wrong));
}

}  // namespace ccl
