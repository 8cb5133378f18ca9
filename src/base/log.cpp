#include <ccl/comm/log.hpp>
#include <ccl/detail/runtime/host_id.hpp>
#include <ccl/detail/runtime/settings.hpp>

#include <array>
#include <atomic>
#include <mutex>
#include <new>
#include <string>

#include "base/text.hpp"
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

namespace ccl {
namespace {

constexpr std::array<std::string_view, 6> level_names{"NONE", "VERSION", "WARN",
                                                      "INFO", "ABORT",   "TRACE"};
constexpr std::array<std::string_view, 11> part_names{
    "INIT", "BOOTSTRAP", "COLL", "P2P", "SHM", "NET", "GRAPH", "TUNING", "ENV", "ALLOC", "PROXY"};

struct State {
  std::atomic<int> level{-1};  // -1: not read yet
  std::atomic<std::uint32_t> parts{0};
  std::mutex mutex;  // guards the rest
  int fd = 2;
  pid_t pid = 0;  // of the process that opened fd
  std::string path;
};
// Never destroyed: background threads may log while the process exits.
State& state() {
  static State* const s = [] {
    auto* const made = new State;
    // A forked child lacks the thread that may hold the mutex in the middle of a line.
    ::pthread_atfork(nullptr, nullptr, [] { new (&state().mutex) std::mutex; });
    return made;
  }();
  return *s;
}

thread_local int thread_rank = -1;

std::uint32_t parse_parts(std::string_view list) {
  const bool invert = list.starts_with('^');
  if (invert) list.remove_prefix(1);
  std::uint32_t mask = 0;
  while (!list.empty()) {
    const auto comma = list.find(',');
    const std::string word = detail::upper(list.substr(0, comma));
    for (size_t i = 0; i < part_names.size(); ++i) {
      if (part_names[i] == word) mask |= 1u << i;
    }
    if (word == "ALL") mask = ~0u;
    list = comma == list.npos ? std::string_view{} : list.substr(comma + 1);
  }
  return invert ? ~mask : mask;
}

std::string expand(std::string_view path) {
  std::string out;
  for (size_t i = 0; i < path.size(); ++i) {
    if (path[i] != '%' || i + 1 == path.size()) {
      out += path[i];
      continue;
    }
    switch (path[++i]) {
      case 'h':
        out += detail::host_name();
        break;
      case 'p':
        out += std::to_string(::getpid());
        break;
      case '%':
        out += '%';
        break;
      default:
        (out += '%') += path[i];
    }
  }
  return out;
}

// Opens the log file. Needs the mutex. Runs again after a fork if the path names the process.
void open_file(State& s) {
  s.pid = ::getpid();
  if (s.fd > 2) ::close(s.fd);
  s.fd = s.path == "stdout" ? 1 : 2;
  if (s.path == "stdout" || s.path == "stderr" || s.path.empty()) return;
  const std::string path = expand(s.path);
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd >= 0) {
    s.fd = fd;
  } else {
    fmt::print(stderr, "cannot write the log to {}; it goes to stderr\n", path);
  }
}

void load(State& s) {
  const std::lock_guard lock{s.mutex};
  if (s.level.load(std::memory_order_acquire) >= 0) return;
  s.path = detail::setting_text("DEBUG_FILE").value_or("stderr");
  open_file(s);
  s.parts = parse_parts(detail::setting_text("DEBUG_SUBSYS").value_or(""));
  const std::string word = detail::setting_text("DEBUG").value_or("WARN");
  int level = int(LogLevel::warn);
  for (size_t i = 0; i < level_names.size(); ++i) {
    if (level_names[i] == word) level = int(i);
  }
  s.level.store(level, std::memory_order_release);
}

std::string_view part_name(LogPart part) {
  for (size_t i = 0; i < part_names.size(); ++i) {
    if (std::uint32_t(part) == 1u << i) return part_names[i];
  }
  return "ALL";
}

}  // namespace

LogRank::LogRank(int rank) : before_(thread_rank) {
  thread_rank = rank;
}
LogRank::~LogRank() {
  thread_rank = before_;
}

bool log_enabled(LogLevel level, LogPart part) {
  State& s = state();
  if (s.level.load(std::memory_order_acquire) < 0) load(s);
  if (int(level) > s.level.load(std::memory_order_relaxed)) return false;
  return level <= LogLevel::warn || (s.parts.load() & std::uint32_t(part)) != 0;
}

void log_line(LogLevel level, LogPart part, std::string_view text) {
  static const std::string& host = *new std::string{detail::host_name()};
  std::string line = fmt::format("{}:{} ", host, ::getpid());
  if (thread_rank >= 0) line += fmt::format("rank {} ", thread_rank);
  line += fmt::format("{} {} ", level_names[size_t(level)], part_name(part));
  for (const char c : text) line += c == '\n' ? ' ' : c;  // one event, one line
  line += '\n';
  State& s = state();
  const std::lock_guard lock{s.mutex};
  if (s.pid != ::getpid() && s.path.find("%p") != s.path.npos) open_file(s);
  // One write: lines of other processes cannot interleave.
  if (::write(s.fd, line.data(), line.size()) < 0) return;
}

void log_reload() {
  state().level.store(-1);
  load(state());
}

}  // namespace ccl
