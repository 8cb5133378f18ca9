#include <ccl/comm/log.hpp>
#include <ccl/detail/runtime/settings.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/text.hpp"
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

// NCCL's initial value of a setting that is a flag in ccl: treated as not set.
bool is_automatic(const Setting& s, std::string_view value) {
  return (s.name == "NVLS_ENABLE" && value == "2") || (s.name == "CUMEM_ENABLE" && value == "-2");
}

// Settings that have another name since the release before. The old name is read for one release.
struct Renamed {
  std::string_view before, now;
};
constexpr std::array<Renamed, 1> renamed{{{"JOURNAL_SIZE", "FLIGHT_RECORDER_SIZE"}}};

struct Given {
  std::string variable;  // "CCL_DEBUG", "NCCL_DEBUG"; empty: the initial value
  std::string value;
};

std::optional<Given> given(const Setting& s) {
  const auto look = [&](std::string_view prefix) -> std::optional<Given> {
    std::string variable = fmt::format("{}{}", prefix, s.name);
    const char* value = std::getenv(variable.c_str());
    if (value == nullptr || *value == 0) return {};  // empty counts as not set
    return Given{std::move(variable), value};
  };
  if (auto mine = look("CCL_")) return mine;
  for (const Renamed& r : renamed) {
    if (r.now != s.name) continue;
    const std::string variable = fmt::format("CCL_{}", r.before);
    const char* value = std::getenv(variable.c_str());
    if (value != nullptr && *value != 0) return Given{variable, value};
  }
  if (!s.nccl) return {};
  auto theirs = look("NCCL_");
  if (theirs && is_automatic(s, theirs->value)) return {};
  return theirs;
}

Result<void> check(const Setting& s, const Given& g) {
  if (fits(s, g.value)) return {};
  return fail(Errc::bad_setting, fmt::format("{}={} does not fit ({}); it takes {}", g.variable,
                                             g.value, s.meaning, valid_values(s)));
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

Result<void> check_settings() {
  const auto settings = all_settings();
  for (char** at = environ; at != nullptr && *at != nullptr; ++at) {
    const std::string_view line{*at};
    if (!line.starts_with("CCL_")) continue;
    const auto equals = line.find('=');
    const std::string_view name = line.substr(4, equals - 4);
    if (find(name) != nullptr) continue;
    if (std::find(not_ours.begin(), not_ours.end(), name) != not_ours.end()) continue;
    if (equals + 1 == line.size()) continue;  // empty: not set
    const auto old = std::find_if(renamed.begin(), renamed.end(),
                                  [&](const Renamed& r) { return r.before == name; });
    if (old != renamed.end()) {
      static std::once_flag warned;
      std::call_once(warned, [&] {
        log_warn(LogPart::env, "CCL_{} is deprecated; set CCL_{}", old->before, old->now);
      });
      continue;
    }
    const auto nearest =
        std::min_element(settings.begin(), settings.end(), [&](const Setting& a, const Setting& b) {
          return distance(a.name, name) < distance(b.name, name);
        });
    std::string names;
    for (const Setting& s : settings) names += fmt::format(" CCL_{}", s.name);
    return fail(
        Errc::bad_setting,
        fmt::format("CCL_{} is set (there is no such setting); did you mean CCL_{}? There are:{}",
                    name, nearest->name, names));
  }
  for (const Setting& s : settings) {
    if (const auto g = given(s)) CCL_CHECK(check(s, *g));
  }
  return {};
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
