#include "dump/flight_dump.hpp"

#include <ccl/element/data_type.hpp>
#include <ccl/version.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "base/io/file.hpp"
#include "dump/pickle.hpp"
#include "dump/record_json.hpp"

namespace ccl::detail {
namespace {

using Json = nlohmann::ordered_json;

// The members and their values are those that PyTorch's analyzer reads
// (torch/distributed/flight_recorder).
constexpr const char* format_version = "2.10";

/// Name of an element type in PyTorch's records (c10/core/ScalarType.h); ccl's name for others.
std::string c10_name(std::string_view type) {
  constexpr std::string_view names[data_type_count] = {
      "Char",   "Short", "Int",      "Long",  "Byte",   "UInt16",        "UInt32",
      "UInt64", "Half",  "BFloat16", "Float", "Double", "Float8_e4m3fn", "Float8_e5m2"};
  const auto known = parse_data_type(type);
  return std::string{known ? names[int(*known)] : type};
}

/// Name of a collective in PyTorch, and the size of its buffers.
struct Kind {
  std::string_view name;  // in ccl
  const char* pytorch;
  bool in_of_ranks, out_of_ranks;  // the buffer holds a share for each rank
};
constexpr std::array kinds{
    Kind{"all_reduce", "all_reduce", false, false},
    Kind{"all_reduce_rows", "all_reduce", false, false},
    Kind{"fused_all_reduce", "all_reduce", false, false},
    Kind{"all_gather", "_all_gather_base", false, true},
    Kind{"reduce_scatter", "_reduce_scatter_base", true, false},
    Kind{"broadcast", "broadcast", false, false},
    Kind{"reduce", "reduce", false, false},
    Kind{"gather", "gather", false, true},
    Kind{"scatter", "scatter", true, false},
    Kind{"all_to_all", "all_to_all", true, true},
    Kind{"all_to_all_v", "all_to_all", false, false},
    Kind{"barrier", "all_reduce_barrier", false, false},
};
/// The analyzer knows no other names, and its older versions fewer. An operation that a program has
/// composed is of this kind.
constexpr Kind composed{"", "all_to_all", false, false};

Kind kind_of(const Operation& op) {
  const std::string_view what = op.what;
  const auto found = std::ranges::find(kinds, what.substr(0, what.find('/')), &Kind::name);
  return found == kinds.end() ? composed : *found;
}

const char* state_of(const Operation& op) {
  switch (op.state) {
    case OpState::queued:
    case OpState::launched:
      return "scheduled";
    case OpState::done:
      return "completed";
    default:
      return "started";
  }
}

Json or_none(Word ns) {
  return ns == 0 ? Json() : Json(ns);
}

/// `[[elements]]`; `[[]]` if the operation has no single count.
Json sizes(Index count, bool of_ranks, int ranks) {
  Json size = Json::array();
  if (count >= 0) size.push_back(of_ranks ? count * ranks : count);
  return Json::array({size});
}

Json entry_of(const FlightRecord& record, const Operation& op) {
  const Kind kind = kind_of(op);
  const Index count = op.type[0] == 0 ? Index{0} : op.count;
  const Json types = Json::array({c10_name(op.type)});
  Json entry{{"record_id", op.number},
             {"pg_id", 0},
             {"process_group", Json::array({record.communicator, "undefined"})},
             {"collective_seq_id", op.number},
             {"p2p_seq_id", 0},
             {"op_id", op.number},
             {"profiling_name", fmt::format("nccl:{}", kind.pytorch)},
             {"time_created_ns", op.queued_ns}};
  if (op.ended_ns > op.started_ns && op.started_ns != 0) {
    entry["duration_ms"] = double(op.ended_ns - op.started_ns) / 1e6;
  }
  entry["input_sizes"] = sizes(count, kind.in_of_ranks, record.ranks);
  entry["input_dtypes"] = types;
  entry["output_sizes"] = sizes(count, kind.out_of_ranks, record.ranks);
  entry["output_dtypes"] = types;
  entry["state"] = state_of(op);
  entry["time_discovered_started_ns"] = or_none(op.started_ns);
  entry["time_discovered_completed_ns"] = or_none(op.ended_ns);
  entry["retired"] = op.state == OpState::done || op.state == OpState::failed;
  entry["timeout_ms"] = 0;
  entry["is_p2p"] = false;
  entry["ccl"] = op.what;
  return entry;
}

/// Numbers of the last collectives that were called, begun and completed.
Json progress_of(const RankStatus& status) {
  Word called = 0, begun = 0, completed = 0;
  for (const Operation& op : status.operations) {
    called = std::max(called, op.number);
    if (op.started_ns != 0) begun = std::max(begun, op.number);
    if (op.state == OpState::done) completed = std::max(completed, op.number);
  }
  return {{"last_enqueued_collective", std::max(called, status.called)},
          {"last_started_collective", begun},
          {"last_completed_collective", completed}};
}

Json pytorch_record(const FlightRecord& record) {
  std::vector<int> ranks(std::size_t(std::max(record.ranks, 0)));
  for (std::size_t r = 0; r < ranks.size(); ++r) ranks[r] = int(r);
  Json entries = Json::array();
  for (const Operation& op : record.status.operations) {
    if (op.number != 0) entries.push_back(entry_of(record, op));
  }
  return {{"version", format_version},
          {"comm_lib_version", fmt::format("ccl {}", version)},
          {"pg_config",
           {{record.communicator,
             {{"name", record.communicator},
              {"desc", "undefined"},
              {"ranks", fmt::format("[{}]", fmt::join(ranks, ", "))}}}}},
          {"pg_status", {{"0", progress_of(record.status)}}},
          {"entries", std::move(entries)},
          {"nccl_comm_state",
           {{record.communicator,
             {{"rank", std::to_string(record.status.rank)},
              {"host", record.status.host},
              {"failure", record.failure}}}}}};
}

}  // namespace

std::string json_of(const FlightRecord& record) {
  Json all = pytorch_record(record);
  all["ccl"] = record_json(record);
  return all.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string pickle_of(const FlightRecord& record) {
  return pickled(pytorch_record(record));
}

std::string json_path(const FlightRecord& record, const std::string& folder) {
  return fmt::format("{}/ccl_{}.{}.json", folder, record.communicator, record.status.rank);
}

// The analyzer takes what follows the prefix for the rank, in every file that contains the prefix.
std::string pickle_path(const FlightRecord& record, const std::string& folder) {
  return fmt::format("{}/ccl_{}_rank_{}", folder, record.communicator, record.status.rank);
}

Result<void> write_flight_record(const FlightRecord& record, const std::string& folder) {
  CCL_CHECK(replace_whole_file(json_path(record, folder), json_of(record)));
  return replace_whole_file(pickle_path(record, folder), pickle_of(record));
}

}  // namespace ccl::detail
