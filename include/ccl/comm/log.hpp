#pragma once

#include <ccl/types/macros.hpp>

#include <fmt/format.h>

#include <cstdint>
#include <string_view>
#include <utility>

namespace ccl {

/// How much is logged: CCL_DEBUG. A line shows if its level is at most the one set.
enum class LogLevel : int { none, version, warn, info, abort, trace };

/// What a line is about: CCL_DEBUG_SUBSYS. Filters INFO and TRACE; warnings always show.
enum class LogPart : std::uint32_t {
  init = 1u << 0,
  bootstrap = 1u << 1,
  coll = 1u << 2,
  p2p = 1u << 3,
  shm = 1u << 4,
  net = 1u << 5,
  graph = 1u << 6,
  tuning = 1u << 7,
  env = 1u << 8,
  alloc = 1u << 9,
  proxy = 1u << 10,
  all = ~0u
};

bool log_enabled(LogLevel level, LogPart part);
/// One line, whole, even when many processes share the file: "host:pid rank 3 WARN BOOTSTRAP text".
void log_line(LogLevel level, LogPart part, std::string_view text);
/// Reads CCL_DEBUG, CCL_DEBUG_SUBSYS and CCL_DEBUG_FILE again. They are read once, at the first
/// line.
void log_reload();

/// While it lives, lines of this thread name this rank.
class LogRank {
 public:
  explicit LogRank(int rank);
  ~LogRank();
  LogRank(const LogRank&) = delete;
  LogRank& operator=(const LogRank&) = delete;

 private:
  int before_;
};

template <class... Args>
void log(LogLevel level, LogPart part, fmt::format_string<Args...> text, Args&&... args) {
  if (log_enabled(level, part))
    log_line(level, part, fmt::format(text, std::forward<Args>(args)...));
}
template <class... Args>
void log_warn(LogPart part, fmt::format_string<Args...> text, Args&&... args) {
  log(LogLevel::warn, part, text, std::forward<Args>(args)...);
}
template <class... Args>
void log_info(LogPart part, fmt::format_string<Args...> text, Args&&... args) {
  log(LogLevel::info, part, text, std::forward<Args>(args)...);
}
template <class... Args>
void log_trace(LogPart part, fmt::format_string<Args...> text, Args&&... args) {
  log(LogLevel::trace, part, text, std::forward<Args>(args)...);
}

}  // namespace ccl
