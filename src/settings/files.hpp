#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ccl::detail {

/// Value that a line of NCCL's configuration files gives to a variable.
struct FileValue {
  std::string variable, value, path;
};
/// Returns the lines NAME=value of a text that begin with NCCL_ or CCL_, as NCCL reads them: a line
/// that begins with # is a comment, and blanks belong to the value. The first of a name counts.
std::vector<FileValue> lines_of(std::string_view text, const std::string& path);
/// Returns the lines of the file that NCCL_CONF_FILE names, or else of ~/.nccl.conf, and then of
/// /etc/nccl.conf. A file that cannot be read has none. Read once, at the first call.
const std::vector<FileValue>& values_of_files();
/// Says why the file that NCCL_CONF_FILE names was not read; empty if it was, or none is named.
const std::string& why_unread();
/// Returns the value of an environment variable, or else that of the files.
std::optional<std::string> value_of_variable(const std::string& variable);
/// Returns the path of the file that gives a variable's value; empty if the environment does.
std::string file_of_variable(const std::string& variable);

}  // namespace ccl::detail
