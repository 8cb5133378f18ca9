#include <ccl/detail/choose/tuning.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/io/file.hpp"

namespace ccl::detail {
namespace {
using Json = nlohmann::json;
constexpr const char* format_name = "ccl tuning table 1";

/// Reads a member of the type of `into`. Returns what is wrong with it.
template <class T>
bool take(const Json& from, const char* key, T& into, std::string& wrong) {
  const auto found = from.find(key);
  bool fits = found != from.end();
  if constexpr (std::is_same_v<T, std::string>) {
    fits = fits && found->is_string();
  } else {
    fits = fits && found->is_number_integer() && *found >= 0 &&
           *found <= std::numeric_limits<T>::max();
  }
  if (fits) {
    into = found->get<T>();
  } else if (wrong.empty()) {
    wrong = fmt::format("\"{}\" is missing or of the wrong kind", key);
  }
  return fits;
}

TuningRow take_row(const Json& from, std::string& wrong) {
  TuningRow row;
  if (!from.is_object()) {
    wrong = "it is no object";
    return row;
  }
  take(from, "op", row.where.op, wrong);
  take(from, "ranks", row.where.ranks, wrong);
  take(from, "hosts", row.where.hosts, wrong);
  take(from, "path", row.where.path, wrong);
  take(from, "compute_capability", row.where.compute_capability, wrong);
  take(from, "max_ctas", row.where.max_ctas, wrong);
  take(from, "bytes", row.bytes, wrong);
  const auto us = from.find("us");
  if (us == from.end() || !us->is_object() || us->empty()) {
    if (wrong.empty()) wrong = "\"us\" is missing or holds no composition";
    return row;
  }
  for (const auto& [name, value] : us->items()) {
    if (!value.is_number() || !(value.get<double>() > 0)) {
      wrong = fmt::format("the time of {} is no number above 0", name);
      return row;
    }
    row.us.emplace_back(name, value.get<double>());
  }
  return row;
}
}  // namespace

Result<TuningTable> TuningTable::parse(std::string_view text, const std::string& name) {
  const auto refuse = [&](const std::string& why) {
    return fail(Errc::bad_setting,
                fmt::format("{} is no table of measurements ({}); write one by ccl_perf --tune",
                            name, why));
  };
  const Json file = Json::parse(text, nullptr, false);
  if (!file.is_object()) return refuse("it is no JSON object");
  if (file.value("format", Json{}) != format_name) {
    return refuse(fmt::format("its \"format\" is not \"{}\"", format_name));
  }
  const auto rows = file.find("rows");
  if (rows == file.end() || !rows->is_array()) return refuse("it has no array \"rows\"");
  TuningTable table;
  if (const auto machine = file.find("machine"); machine != file.end() && machine->is_string()) {
    table.machine = machine->get<std::string>();
  }
  for (const Json& one : *rows) {
    std::string wrong;
    table.rows.push_back(take_row(one, wrong));
    if (!wrong.empty()) return refuse(fmt::format("row {}: {}", table.rows.size() - 1, wrong));
  }
  return table;
}

Result<TuningTable> TuningTable::read(const std::string& path) {
  const auto text = detail::whole_file(path);
  if (text) return parse(*text, path);
  return fail(Errc::bad_setting,
              fmt::format("no table of measurements: {}; see CCL_TUNE_FILE and Config::tune_file",
                          text.error().what));
}

std::string TuningTable::json() const {
  nlohmann::ordered_json file{{"format", format_name}, {"machine", machine}};
  auto& out = file["rows"] = nlohmann::ordered_json::array();
  for (const TuningRow& row : rows) {
    nlohmann::ordered_json us;
    const std::pair<std::string, double>* best = nullptr;
    for (const auto& one : row.us) {
      us[one.first] = std::round(one.second * 1e3) / 1e3;
      if (best == nullptr || one.second < best->second) best = &one;
    }
    out.push_back({{"op", row.where.op},
                   {"ranks", row.where.ranks},
                   {"hosts", row.where.hosts},
                   {"path", row.where.path},
                   {"compute_capability", row.where.compute_capability},
                   {"max_ctas", row.where.max_ctas},
                   {"bytes", row.bytes},
                   {"best", best == nullptr ? "" : best->first},
                   {"us", us}});
  }
  return file.dump(1) + "\n";
}

Result<void> TuningTable::write(const std::string& path) const {
  return replace_whole_file(path, json());  // a communicator may be reading the old file
}

void TuningTable::merge(const TuningTable& other) {
  for (const TuningRow& row : other.rows) {
    const auto same = [&](const TuningRow& mine) {
      return mine.where == row.where && mine.bytes == row.bytes;
    };
    const auto found = std::find_if(rows.begin(), rows.end(), same);
    if (found == rows.end()) {
      rows.push_back(row);
    } else {
      *found = row;
    }
  }
  if (!other.machine.empty()) machine = other.machine;
}

std::vector<const TuningRow*> TuningTable::of(const TuningCase& where) const {
  std::vector<const TuningRow*> found;
  for (const TuningRow& row : rows) {
    if (row.where == where) found.push_back(&row);
  }
  std::sort(found.begin(), found.end(),
            [](const TuningRow* a, const TuningRow* b) { return a->bytes < b->bytes; });
  return found;
}

}  // namespace ccl::detail
