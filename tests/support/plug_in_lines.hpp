#pragma once

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "support/nccl_ranks.hpp"
#include "support/processes.hpp"
#include <dlfcn.h>

namespace ccl::test {

/// Returns what the plug-in at `path` has written in this process.
inline std::string lines_of_plug_in(const char* path) {
  void* const library = ::dlopen(path, RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) return "not loaded";
  return reinterpret_cast<const char* (*)()>(::dlsym(library, "ccl_test_lines"))();
}

/// Runs `calls` in a process of its own with these variables, because a process looks for plug-ins
/// once. `calls` returns false if one of them failed. Returns the lines of the plug-in at `path`;
/// "not loaded" if it was not loaded.
template <class Calls>
std::string plug_in_lines(const char* path,
                          std::vector<std::pair<const char*, std::string>> variables,
                          Calls&& calls) {
  struct Text {
    char of[1 << 20] = {};
  };
  Shared<Text> text;
  const pid_t pid = start_process([&]() -> int {
    for (const auto& [name, value] : variables) ::setenv(name, value.c_str(), 1);
    if (!calls()) return 1;
    const std::string all = lines_of_plug_in(path);
    all.copy(text->of, sizeof text->of - 1);
    return 0;
  });
  return reap({pid}, 60) ? std::string{text->of} : "the process failed";
}

/// The lines of a rank, without its number.
inline std::vector<std::string> lines_of(const std::string& all, int rank) {
  std::vector<std::string> lines;
  const std::string begin = std::to_string(rank) + " ";
  for (std::size_t at = 0; at < all.size();) {
    const auto end = std::min(all.find('\n', at), all.size());
    if (all.compare(at, begin.size(), begin) == 0) {
      lines.push_back(all.substr(at + begin.size(), end - at - begin.size()));
    }
    at = end + 1;
  }
  return lines;
}

}  // namespace ccl::test
