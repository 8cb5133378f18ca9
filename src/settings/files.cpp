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

struct Files {
  std::vector<FileValue> values;
  std::string why_unread;
};

Result<void> read_file(std::vector<FileValue>& all, const std::string& path) {
  CCL_TRY(const std::string text, whole_file(path));
  for (FileValue& one : lines_of(text, path)) {
    if (!holds(all, one.variable)) all.push_back(std::move(one));
  }
  return {};
}

Files read_files() {
  Files files;
  const char* const named = std::getenv("NCCL_CONF_FILE");
  const char* const home = std::getenv("HOME");
  if (named != nullptr && *named != 0) {
    const auto done = read_file(files.values, named);
    if (!done) files.why_unread = done.error().what;
  } else if (home != nullptr && *home != 0) {  // most machines have none of these
    (void)read_file(files.values, std::string{home} + "/.nccl.conf");
  }
  (void)read_file(files.values, "/etc/nccl.conf");
  return files;
}

const Files& files() {
  static constinit MadeOnce<Files> all;
  return all.get([] { return std::make_unique<Files>(read_files()); });
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
  return files().values;
}

const std::string& why_unread() {
  return files().why_unread;
}

std::optional<std::string> value_of_variable(const std::string& variable) {
  if (auto value = environment_value(variable)) return value;
  for (const FileValue& one : values_of_files()) {
    if (one.variable == variable) return one.value;
  }
  return {};
}

std::string file_of_variable(const std::string& variable) {
  if (environment_value(variable)) return {};
  for (const FileValue& one : values_of_files()) {
    if (one.variable == variable) return one.path;
  }
  return {};
}

}  // namespace ccl::detail
