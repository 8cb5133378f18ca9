#include "settings/files.hpp"

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "base/io/file.hpp"
#include "base/made_once.hpp"
#include "settings/environment.hpp"

namespace ccl::detail {
namespace {

bool holds(const std::vector<FileValue>& all, std::string_view variable) {
  return std::ranges::any_of(all, [&](const FileValue& one) { return one.variable == variable; });
}

void read_file(std::vector<FileValue>& all, const std::string& path) {
  const auto text = whole_file(path);
  if (!text) return;  // most machines have none
  for (FileValue& one : lines_of(*text, path)) {
    if (!holds(all, one.variable)) all.push_back(std::move(one));
  }
}

std::vector<FileValue> read_files() {
  std::vector<FileValue> all;
  const char* const named = std::getenv("NCCL_CONF_FILE");
  const char* const home = std::getenv("HOME");
  if (named != nullptr && *named != 0) {
    read_file(all, named);
  } else if (home != nullptr && *home != 0) {
    read_file(all, std::string{home} + "/.nccl.conf");
  }
  read_file(all, "/etc/nccl.conf");
  return all;
}

}  // namespace

std::vector<FileValue> lines_of(std::string_view text, const std::string& path) {
  std::vector<FileValue> all;
  while (!text.empty()) {
    const auto end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    const auto equals = line.find('=');
    if (equals == line.npos || line.starts_with('#')) continue;
    const auto variable = line.substr(0, equals);
    if (!variable.starts_with("NCCL_") && !variable.starts_with("CCL_")) continue;
    if (holds(all, variable)) continue;
    all.push_back({std::string{variable}, std::string{line.substr(equals + 1)}, path});
  }
  return all;
}

const std::vector<FileValue>& values_of_files() {
  static constinit MadeOnce<std::vector<FileValue>> all;
  return all.get([] { return std::make_unique<std::vector<FileValue>>(read_files()); });
}

std::optional<std::string> value_of_variable(const std::string& variable) {
  if (auto value = environment_value(variable)) return value;
  for (const FileValue& one : values_of_files()) {
    if (one.variable == variable) return one.value;
  }
  return {};
}

}  // namespace ccl::detail
