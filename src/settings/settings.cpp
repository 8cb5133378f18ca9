#include <ccl/comm/log.hpp>
#include <ccl/detail/runtime/settings.hpp>
#include <ccl/version.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/fork_mutex.hpp"
#include "base/text.hpp"
#include "settings/environment.hpp"
#include "settings/files.hpp"
#include "settings/report.hpp"
#include "settings/values.hpp"
#include <unistd.h>

namespace ccl::detail {
namespace {

using detail::fits;
using detail::parse_bytes;
using detail::parse_integer;
using detail::parse_seconds;
using detail::upper;
using detail::valid_values;
using enum SettingKind;

// Variables of other programs. find_package looks for ccl at CCL_ROOT, and the scripts of oneAPI,
// whose library has the same prefix, set the first four. ccl's own tests use the last.
constexpr std::array<std::string_view, 5> not_ours{"ATL_TRANSPORT_PATH", "CONFIGURATION",
                                                   "CONFIGURATION_PATH", "ROOT", "TEST_TOPOLOGIES"};

// NCCL's initial value of settings that are flags or bytes in ccl: treated as not set.
bool is_automatic(const Setting& s, std::string_view value) {
  return (s.kind == flag || s.kind == bytes) && value == "-2";
}

// Settings of which NCCL takes or cuts numbers that ccl does not have. From `least` to `most`, the
// nearest number that fits counts.
struct Cut {
  std::string_view name;
  Index least, most;
  Index end = 0;  // NCCL's largest number, where it is below ccl's
};
constexpr Index lowest = std::numeric_limits<Index>::min();
constexpr Index highest = std::numeric_limits<Index>::max();
constexpr std::array cuts{
    Cut{"BUFFSIZE", 1, highest},
    Cut{"COLLNET_NODE_THRESHOLD", lowest, highest},
    Cut{"IB_ADAPTIVE_ROUTING", 0, highest},
    Cut{"IB_AR_THRESHOLD", lowest, highest},
    Cut{"IB_GID_INDEX", lowest, 65535},
    Cut{"IB_QPS_PER_CONNECTION", 1, highest},
    Cut{"LL128_BUFFSIZE", 1, highest},
    Cut{"LL_BUFFSIZE", 1, highest},
    Cut{"MAX_CTAS", 1, highest},
    Cut{"MIN_CTAS", 1, highest, 64},
    Cut{"NCHANNELS_PER_NET_PEER", 1, highest},
    Cut{"NET_GDR_READ", lowest, highest},
    Cut{"NSOCKS_PERTHREAD", -2, highest},
    Cut{"SOCKET_NTHREADS", -2, highest},
};

/// Returns a value of NCCL's as the nearest that fits; nothing if it is not to be cut, or fits.
std::optional<std::string> cut(const Setting& s, std::string_view value) {
  const auto* const one = std::ranges::find(cuts, s.name, &Cut::name);
  const auto number = parse_integer(value);
  if (one == cuts.end() || !number || *number < one->least || *number > one->most) return {};
  const Index nearest = std::clamp(*number, s.least, one->end == 0 ? s.most : one->end);
  return nearest == *number ? std::nullopt : std::optional{std::to_string(nearest)};
}

// Settings that have another name since the release before. The old name is read for one release.
struct Renamed {
  std::string_view before, now;
};
constexpr std::array<Renamed, 1> renamed{{{"JOURNAL_SIZE", "FLIGHT_RECORDER_SIZE"}}};

struct Given {
  std::string variable;  // "CCL_DEBUG", "NCCL_DEBUG"
  std::string value;
  std::string whole = {};  // the value before it was cut; empty: it was not
};

/// Returns a value as NCCL reads it: blanks around it do not count, a number may be hexadecimal or
/// octal, and any number but 0 switches a flag on.
std::string as_nccl_reads(const Setting& s, std::string_view value) {
  const auto blank = [](char c) { return c == ' ' || c == '\t'; };
  while (!value.empty() && blank(value.front())) value.remove_prefix(1);
  while (!value.empty() && blank(value.back())) value.remove_suffix(1);
  std::string text{value};
  if (s.kind != flag && s.kind != integer && s.kind != bytes) return text;
  const char* const digits = text.c_str();
  char* end = nullptr;
  errno = 0;
  const long long number = std::strtoll(digits, &end, 0);
  if (end == digits || *end != 0 || errno != 0) return text;
  if (s.kind == flag && number > 0) return "1";
  return std::to_string(number);
}

std::optional<Given> value_given(const Setting& s, std::string_view prefix) {
  std::string variable = fmt::format("{}{}", prefix, s.name);
  auto value = value_of_variable(variable);
  if (!value || value->empty()) return {};  // empty counts as not set
  return Given{std::move(variable), *std::move(value)};
}

/// NCCL_ value of a setting; `fitting` leaves out one that does not fit.
std::optional<Given> given_as_nccl(const Setting& s, bool fitting = true) {
  if (!s.nccl) return {};
  auto theirs = value_given(s, "NCCL_");
  if (!theirs) return {};
  theirs->value = as_nccl_reads(s, theirs->value);
  if (theirs->value.empty() || is_automatic(s, theirs->value)) return {};
  if (auto nearest = cut(s, theirs->value)) {
    theirs->whole = std::exchange(theirs->value, *std::move(nearest));
  }
  if (fitting && !fits(s, theirs->value)) return {};
  return theirs;
}

std::optional<Given> given(const Setting& s) {
  if (auto mine = value_given(s, "CCL_")) return mine;
  for (const Renamed& r : renamed) {
    if (r.now != s.name) continue;
    const std::string variable = fmt::format("CCL_{}", r.before);
    const char* value = std::getenv(variable.c_str());
    if (value != nullptr && *value != 0) return Given{variable, value};
  }
  return given_as_nccl(s);
}

/// Returns " in PATH" for a variable whose value a file gives.
std::string in_file(const std::string& variable) {
  const std::string path = file_of_variable(variable);
  return path.empty() ? path : fmt::format(" in {}", path);
}

Result<void> check(const Setting& s, const Given& g) {
  if (fits(s, g.value)) return {};
  return fail(Errc::bad_setting,
              fmt::format("{}={}{} does not fit ({}); it takes {}", g.variable, g.value,
                          in_file(g.variable), s.meaning, valid_values(s)));
}

const Setting* find(std::string_view name) {
  for (const Setting& s : all_settings()) {
    if (s.name == name) return &s;
  }
  return nullptr;
}

Result<std::string> value_of(std::string_view name, SettingKind kind) {
  const Setting* s = find(name);
  if (s == nullptr || (s->kind != kind && !(s->kind == word && kind == text))) {
    return fail(Errc::internal, fmt::format("there is no setting {} of this kind", name));
  }
  const auto g = given(*s);
  if (!g) return std::string{s->initial};
  CCL_CHECK(check(*s, *g));
  return s->kind == word ? upper(g->value) : g->value;
}

// Minimum number of single-letter edits from a to b.
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t old = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0 : 1)});
      diagonal = old;
    }
  }
  return row[b.size()];
}

}  // namespace

namespace {

/// Calls see(name without CCL_) for each variable of ccl's that is set and no setting.
template <class See>
void each_unknown(See see) {
  const auto look = [&](std::string_view variable, std::string_view value) {
    if (!variable.starts_with("CCL_") || value.empty()) return;
    const std::string_view name = variable.substr(4);
    const bool old = std::ranges::any_of(renamed, [&](auto& r) { return r.before == name; });
    const bool others = std::ranges::find(not_ours, name) != not_ours.end();
    if (!old && !others && find(name) == nullptr) see(name);
  };
  for (char** at = environ; at != nullptr && *at != nullptr; ++at) {
    const std::string_view line{*at};
    const auto equals = std::min(line.find('='), line.size());
    look(line.substr(0, equals), line.substr(std::min(equals + 1, line.size())));
  }
  for (const FileValue& one : values_of_files()) look(one.variable, one.value);
}

/// Returns the setting with the nearest name, or null if none is near.
const Setting* nearest(std::string_view name) {
  constexpr size_t near = 2;  // letters
  const auto settings = all_settings();
  const auto found = std::ranges::min_element(
      settings, {}, [&](const Setting& s) { return distance(s.name, name); });
  return distance(found->name, name) <= near ? &*found : nullptr;
}

std::string unknown(std::string_view name) {
  const Setting* const near = nearest(name);
  return fmt::format("CCL_{} is set (there is no such setting){}", name,
                     near == nullptr ? "" : fmt::format("; did you mean CCL_{}?", near->name));
}

/// Returns true for the first call of the process with a text.
bool is_first(const std::string& text) {
  struct Seen {
    std::set<std::string> all;
    ForkMutex mutex{[this] { renew(all); }};
  };
  static auto* const seen = new Seen;  // until the process ends
  const std::lock_guard lock{seen->mutex};
  return seen->all.insert(text).second;
}

/// NCCL's variables that are no settings of ccl: read elsewhere, or by the programs themselves.
bool is_read_elsewhere(std::string_view variable) {
  return variable == "NCCL_CONF_FILE";
}

void report_unread() {
  const auto look = [](std::string_view variable, std::string_view value) {
    if (!variable.starts_with("NCCL_") || value.empty() || is_read_elsewhere(variable)) return;
    const Setting* const s = find(variable.substr(5));
    if (s != nullptr && s->nccl) return;
    const std::string text = fmt::format("{}={} is not read by ccl", variable, value);
    if (is_first(text)) log_info(LogPart::env, "{}", text);
  };
  for (char** at = environ; at != nullptr && *at != nullptr; ++at) {
    const std::string_view line{*at};
    const auto equals = std::min(line.find('='), line.size());
    look(line.substr(0, equals), line.substr(std::min(equals + 1, line.size())));
  }
  for (const FileValue& one : values_of_files()) look(one.variable, one.value);
}

void report_given(const Setting& s) {
  if (const auto theirs = given_as_nccl(s, false); theirs && !fits(s, theirs->value)) {
    const std::string text =
        fmt::format("{}={}{} does not fit ({}) and is left out; it takes {}", theirs->variable,
                    theirs->value, in_file(theirs->variable), s.meaning, valid_values(s));
    if (is_first(text)) log_warn(LogPart::env, "{}", text);
  }
  const auto set = given(s);
  if (!set) return;
  const bool secret = s.name == "SECRET";
  const std::string file = file_of_variable(set->variable);
  const std::string text =
      fmt::format("{} set by {} to {}{}", set->variable, file.empty() ? "environment" : file,
                  secret ? "a text that is not shown" : set->value,
                  set->whole.empty() ? "" : fmt::format(", the nearest to {}", set->whole));
  if (is_first(text)) log_info(LogPart::env, "{}", text);
}

}  // namespace

Result<void> check_settings() {
  CCL_TRY(const bool strict, setting_flag("STRICT"));
  Result<void> done;
  each_unknown([&](std::string_view name) {
    if (!strict || !done) return;
    std::string names;
    for (const Setting& s : all_settings()) names += fmt::format(" CCL_{}", s.name);
    done = fail(Errc::bad_setting, fmt::format("{} CCL_STRICT=1 allows only settings; there are:{}",
                                               unknown(name), names));
  });
  CCL_CHECK(done);
  for (const Renamed& old : renamed) {
    const std::string variable = fmt::format("CCL_{}", old.before);
    const char* const value = std::getenv(variable.c_str());
    if (value != nullptr && *value != 0 && is_first(variable)) {
      log_warn(LogPart::env, "{} is deprecated; set CCL_{}", variable, old.now);
    }
  }
  for (const Setting& s : all_settings()) {
    if (const auto g = given(s)) CCL_CHECK(check(s, *g));
  }
  return {};
}

void report_settings(int rank) {
  if (rank == 0 && setting_given("DEBUG") && is_first("version")) {
    log(LogLevel::version, LogPart::init, "ccl version {}", version);
  }
  if (rank == 0) {
    each_unknown([](std::string_view name) {
      const std::string text = unknown(name);
      if (is_first(text)) log_warn(LogPart::env, "{}", text);
    });
  }
  if (const std::string& why = why_unread(); !why.empty() && is_first(why)) {
    log(rank == 0 ? LogLevel::warn : LogLevel::info, LogPart::env,
        "no values of NCCL_CONF_FILE count: {}", why);
  }
  for (const Setting& s : all_settings()) report_given(s);
  report_unread();
}

std::string variable_of(std::string_view setting) {
  const Setting* const s = find(setting);
  const auto set = s == nullptr ? std::nullopt : given(*s);
  return set ? set->variable : fmt::format("CCL_{}", setting);
}

Result<bool> setting_flag(std::string_view name) {
  CCL_TRY(const std::string v, value_of(name, flag));
  return parse_integer(v) == 1;
}
Result<Index> setting_integer(std::string_view name) {
  CCL_TRY(const std::string v, value_of(name, integer));
  return parse_integer(v).value_or(0);
}
Result<Index> setting_bytes(std::string_view name) {
  CCL_TRY(const std::string v, value_of(name, bytes));
  return parse_bytes(v).value_or(0);
}
Result<double> setting_seconds(std::string_view name) {
  CCL_TRY(const std::string v, value_of(name, seconds));
  return parse_seconds(v).value_or(0);
}
Result<std::string> setting_text(std::string_view name) {
  return value_of(name, text);
}

bool setting_given(std::string_view name) {
  const Setting* s = find(name);
  return s != nullptr && given(*s).has_value();
}

}  // namespace ccl::detail
