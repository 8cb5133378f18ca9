#pragma once

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "base/io/file.hpp"

namespace ccl::topo::detail {
namespace fs = std::filesystem;

/// Returns the first line without its end; empty if the file cannot be read.
inline std::string line_of(const fs::path& path) {
  std::string text = ccl::detail::first_line(path);
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back())) != 0) {
    text.pop_back();
  }
  return text;
}

/// Entries in an order that does not depend on the file system.
inline std::vector<fs::path> entries(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code ignored;
  for (auto it = fs::directory_iterator(folder, ignored); it != fs::directory_iterator();
       it.increment(ignored)) {
    found.push_back(it->path());
    if (ignored) break;
  }
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace ccl::topo::detail
