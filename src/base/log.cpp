#include <ccl/comm/log.hpp>
#include <ccl/detail/runtime/host_id.hpp>
#include <ccl/detail/runtime/settings.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <mutex>
#include <new>
#include <string>
#include <utility>

#include "base/exceptions.hpp"
#include "base/io/line_queue.hpp"
#include "base/log_style.hpp"
#include "base/made_once.hpp"
#include "base/text.hpp"
#include "base/thread.hpp"
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/stat.h>
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
  struct stat stream {};  // of a standard stream when it was opened
  pid_t pid = 0;          // of the process that opened fd
  std::string path;
  struct Lines {
    detail::LineQueue queue{};
    Lines* parents = nullptr;  // in a forked child; never touched
  };
  Lines first{};
  Lines* lines = &first;
  bool writing = false;  // a thread writes the lines that wait
};
constexpr double exit_s = 1;  // for waiting lines when the process exits
void write_at_exit(State& s);

// Never destroyed: background threads may log while the process exits. Needs no memory.
State& state() noexcept {
  alignas(State) static std::byte place[sizeof(State)];
  static State* const s = [] {
    auto* const made = new (place) State;
    // A forked child lacks the thread that may hold the mutex in the middle of a line. Lines that
    // wait are the parent's.
    ::pthread_atfork(nullptr, nullptr, [] {
      State& s = state();
      new (&s.mutex) std::mutex;
      auto* own = new (std::nothrow) State::Lines{{}, s.lines};
      if (own == nullptr) own = new (s.lines) State::Lines{};
      s.lines = own;
      s.writing = false;
    });
    std::atexit([] { write_at_exit(state()); });
    return made;
  }();
  return *s;
}

// Initialized when the library is loaded: see `forks_before`.
[[maybe_unused]] const State& early = state();

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

/// True if a line may be written. A program may close a standard stream later, so that its number
/// becomes that of a connection. Another file, pipe or terminal is where the program wants it.
bool may_write(const State& s) {
  if (s.fd < 0 || s.fd > 2) return s.fd >= 0;
  struct stat now {};
  if (::fstat(s.fd, &now) != 0) return false;
  if (now.st_dev == s.stream.st_dev && now.st_ino == s.stream.st_ino) return true;
  return S_ISREG(now.st_mode) || S_ISFIFO(now.st_mode) || S_ISCHR(now.st_mode);
}

// Opens the log file. Needs the mutex. Runs again after a fork if the path names the process.
void open_file(State& s) {
  s.pid = ::getpid();
  if (s.fd > 2) ::close(s.fd);
  s.fd = s.path == "stdout" ? 1 : 2;
  // A number that is not open now may be given to a file or a connection of the program later.
  if (::fstat(s.fd, &s.stream) != 0) s.fd = -1;
  if (s.path == "stdout" || s.path == "stderr" || s.path.empty()) return;
  const std::string path = expand(s.path);
  int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0644);
  if (fd >= 0 && fd <= 2) {  // others take these numbers for the standard streams
    const int above = ::fcntl(fd, F_DUPFD_CLOEXEC, 3);
    ::close(std::exchange(fd, above));
  }
  if (fd >= 0) {
    s.fd = fd;
  } else if (s.fd >= 0) {
    s.lines->queue.write(s.fd, fmt::format("cannot write the log to {}; it goes to stderr\n", path),
                         {});
  }
}

void read_settings(State& s) {
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

/// Waits until the file accepts more, at most 50 ms.
void wait_for_room(int fd) {
  pollfd room{fd, POLLOUT, 0};
  (void)::poll(&room, 1, 50);
  ::usleep(1000);  // a file that is closed or has less room than a line
}

/// Body of the thread that writes lines which found no room. It ends when none is left.
void write_waiting(State& s) {
  std::unique_lock lock{s.mutex};
  for (;;) {
    if (may_write(s)) s.lines->queue.flush(s.fd);
    if (s.lines->queue.empty() || !may_write(s)) break;
    const int fd = s.fd;
    lock.unlock();
    wait_for_room(fd);
    lock.lock();
  }
  s.writing = false;
}

void write_at_exit(State& s) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(exit_s);
  std::unique_lock lock{s.mutex};
  for (;;) {
    if (!may_write(s)) return;
    s.lines->queue.flush(s.fd);
    if (s.lines->queue.empty() || std::chrono::steady_clock::now() >= until) return;
    const int fd = s.fd;
    lock.unlock();
    wait_for_room(fd);
    lock.lock();
  }
}

/// Starts the thread for lines that found no room, unless it runs.
void start_writing(State& s) {
  {
    const std::lock_guard lock{s.mutex};
    if (s.lines->queue.empty() || std::exchange(s.writing, true)) return;
  }
  auto thread = detail::own_thread("the log", [&s] { write_waiting(s); });
  if (thread) return thread->detach();
  const std::lock_guard lock{s.mutex};
  s.writing = false;  // the next line tries again
}

void load(State& s) {
  read_settings(s);
  start_writing(s);
}

/// Writes the line, or queues it for another thread. Never waits for the reader of the log.
void put_line(State& s, std::string_view line, std::string_view prefix) {
  {
    const std::lock_guard lock{s.mutex};
    if (s.pid != ::getpid() && s.path.find("%p") != s.path.npos) open_file(s);
    if (!may_write(s)) return;
    s.lines->queue.write(s.fd, line, prefix);
    if (s.lines->queue.empty()) return;
  }
  start_writing(s);
}

std::string_view part_name(LogPart part) {
  for (size_t i = 0; i < part_names.size(); ++i) {
    if (std::uint32_t(part) == 1u << i) return part_names[i];
  }
  return "ALL";
}

/// Function that returns the thread's device; set if lines begin as those of NCCL.
std::atomic<int (*)()> device_of_nccl{nullptr};

/// Beginning of a line. `whose` is empty in texts of NCCL, which name their rank themselves.
std::string begin_line(LogLevel level, std::string_view host, std::string_view whose) {
  const std::string_view name = level_names[size_t(level)];
  const auto device = device_of_nccl.load(std::memory_order_acquire);
  if (device == nullptr) {
    std::string line = fmt::format("{}:{} ", host, ::getpid());
    if (thread_rank >= 0) line += fmt::format("rank {} ", thread_rank);
    return line + fmt::format("{} {}", name, whose);
  }
  if (level == LogLevel::version && whose.empty()) return {};
  return fmt::format("{}:{}:{} [{}] NCCL {} {}", host.substr(0, host.find('.')), ::getpid(),
                     ::gettid(), device(), name, whose);
}

void write_line(LogLevel level, std::string_view whose, std::string_view text) {
  static constinit detail::MadeOnce<const std::string> known;
  const std::string& host =
      known.get([] { return std::make_unique<const std::string>(detail::host_name()); });
  std::string line = begin_line(level, host, whose);
  for (const char c : text) line += c == '\n' ? ' ' : c;  // one event, one line
  if (!whose.empty() && thread_rank >= 0 && device_of_nccl.load(std::memory_order_relaxed)) {
    line += fmt::format(" (rank {})", thread_rank);
  }
  line += '\n';
  // One write: lines of other processes cannot interleave.
  put_line(state(), line, begin_line(LogLevel::warn, host, "INIT "));
}
void write_line(LogLevel level, LogPart part, std::string_view text) {
  write_line(level, fmt::format("{} ", part_name(part)), text);
}

}  // namespace

LogRank::LogRank(int rank) : before_(thread_rank) {
  thread_rank = rank;
}
LogRank::~LogRank() {
  thread_rank = before_;
}

bool log_enabled(LogLevel level, LogPart part) noexcept {
  State& s = state();
  if (s.level.load(std::memory_order_acquire) < 0 && !detail::completes([&s] { load(s); })) {
    lose_log_line();
    return false;
  }
  if (int(level) > s.level.load(std::memory_order_relaxed)) return false;
  return level <= LogLevel::warn || (s.parts.load() & std::uint32_t(part)) != 0;
}

void log_line(LogLevel level, LogPart part, std::string_view text) noexcept {
  if (!detail::completes([&] { write_line(level, part, text); })) lose_log_line();
}

void detail::log_formatted(LogLevel level, LogPart part, fmt::string_view text,
                           fmt::format_args args) noexcept {
  if (!detail::completes([&] { write_line(level, part, fmt::vformat(text, args)); })) {
    lose_log_line();
  }
}

void detail::use_nccl_log_style(int (*device)()) noexcept {
  device_of_nccl.store(device, std::memory_order_release);
}

bool detail::is_nccl_log_style() noexcept {
  return device_of_nccl.load(std::memory_order_acquire) != nullptr;
}

void detail::log_as_nccl(LogLevel level, LogPart part, std::string_view text) noexcept {
  if (!log_enabled(level, part)) return;
  if (!detail::completes([&] { write_line(level, "", text); })) lose_log_line();
}

void lose_log_line() noexcept {
  State& s = state();
  const std::lock_guard lock{s.mutex};
  s.lines->queue.lose();
}

void log_reload() {
  state().level.store(-1);
  load(state());
}

}  // namespace ccl
