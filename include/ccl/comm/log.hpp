#pragma once

#include <ccl/types/macros.hpp>

#include <fmt/format.h>

#include <cstdint>
#include <string_view>
#include <utility>

namespace ccl {

/// Log level (CCL_DEBUG). A line appears if its level is at most the selected one.
enum class LogLevel : int { none, version, warn, info, abort, trace };

/// Subject of a line (CCL_DEBUG_SUBSYS). It filters INFO and TRACE; warnings always appear.
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

bool log_enabled(LogLevel level, LogPart part) noexcept;
/// Writes one line: "host:pid rank 3 WARN BOOTSTRAP text". Lines stay whole even if many processes
/// share the file.
///
/// It never waits for a reader of the log. Lines that find no room wait in a queue of 1 MiB, in
/// order, which a thread writes when the reader reads. Further lines are lost, and one line reports
/// their number, as they are without memory. At exit, the process waits at most 1 s for a reader.
void log_line(LogLevel level, LogPart part, std::string_view text) noexcept;
/// Counts a line that could not be made, for the report of lost lines.
void lose_log_line() noexcept;
/// Reads CCL_DEBUG, CCL_DEBUG_SUBSYS and CCL_DEBUG_FILE again. By default they are read once, at
/// the first line.
void log_reload();

/// Adds this rank to the lines of the current thread during its lifetime.
class LogRank {
 public:
  explicit LogRank(int rank);
  ~LogRank();
  LogRank(const LogRank&) = delete;
  LogRank& operator=(const LogRank&) = delete;

 private:
  int before_;
};

namespace detail {
/// Formats and writes one line. In the library, because a program may be compiled without
/// exceptions.
void log_formatted(LogLevel level, LogPart part, fmt::string_view text,
                   fmt::format_args args) noexcept;
}  // namespace detail

template <class... Args>
void log(LogLevel level, LogPart part, fmt::format_string<Args...> text, Args&&... args) {
  if (!log_enabled(level, part)) return;
  detail::log_formatted(level, part, text, fmt::make_format_args(args...));
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
