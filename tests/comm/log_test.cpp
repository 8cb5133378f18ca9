#include <ccl/comm/log.hpp>
#include <ccl/detail/runtime/host_id.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "support/catch.hpp"
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace ccl;

namespace {

// Logs to a file of its own while it lives.
class Capture {
 public:
  Capture(const char* level, const char* parts) {
    ::setenv("CCL_DEBUG", level, 1);
    ::setenv("CCL_DEBUG_SUBSYS", parts, 1);
    ::setenv("CCL_DEBUG_FILE", "log_test.%h.%p.log", 1);
    log_reload();
  }
  ~Capture() {
    for (const char* name : {"CCL_DEBUG", "CCL_DEBUG_SUBSYS", "CCL_DEBUG_FILE"}) ::unsetenv(name);
    log_reload();
    std::remove(path().c_str());
  }
  static std::string path() {
    return "log_test." + detail::host_name() + "." + std::to_string(::getpid()) + ".log";
  }
  std::vector<std::string> lines() const {
    std::ifstream in{path()};
    std::vector<std::string> out;
    for (std::string line; std::getline(in, line);) out.push_back(line);
    return out;
  }
};

std::string prefix() {
  return detail::host_name() + ":" + std::to_string(::getpid()) + " ";
}

}  // namespace

TEST_CASE("a line names host, process, rank, level and part") {
  const Capture capture{"WARN", "ALL"};
  log_warn(LogPart::net, "{} is {}", "mlx5_0", 7);
  {
    const LogRank rank{3};
    log_warn(LogPart::init, "two\nlines");
  }
  log_warn(LogPart::init, "no rank");
  const auto lines = capture.lines();
  REQUIRE(lines.size() == 3);
  CHECK(lines[0] == prefix() + "WARN NET mlx5_0 is 7");
  CHECK(lines[1] == prefix() + "rank 3 WARN INIT two lines");
  CHECK(lines[2] == prefix() + "WARN INIT no rank");
}

TEST_CASE("levels and parts filter as NCCL's do") {
  const auto shown = [](const char* level, const char* parts) {
    const Capture capture{level, parts};
    log(LogLevel::version, LogPart::init, "v");
    log_warn(LogPart::coll, "w");
    log_info(LogPart::coll, "ic");
    log_info(LogPart::net, "in");
    log(LogLevel::abort, LogPart::net, "a");
    log_trace(LogPart::net, "t");
    std::string all;
    for (const auto& line : capture.lines()) all += line.substr(line.rfind(' ')) + ",";
    return all;
  };
  CHECK(shown("NONE", "ALL") == "");
  CHECK(shown("VERSION", "ALL") == " v,");
  CHECK(shown("ATTN", "NET") == " v, w,");
  CHECK(shown("WARN", "NET") == " v, w,");
  CHECK(shown("info", "net") == " v, w, in,");
  CHECK(shown("INFO", "^NET,INIT") == " v, w, ic,");
  CHECK(shown("TRACE", "COLL,NET") == " v, w, ic, in, a, t,");
}

TEST_CASE("a program without standard streams gets no log into its files") {
  const std::string own = "/tmp/ccl.streams." + std::to_string(::getpid());
  const auto child = ::fork();
  if (child == 0) {
    for (const int fd : {0, 1, 2}) ::close(fd);
    ::setenv("CCL_DEBUG", "INFO", 1);
    log_reload();  // the first look
    const int first = ::open(own.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600);
    const int second = ::dup(first), third = ::dup(first);
    log_warn(LogPart::init, "lost");
    const bool same = first == 0 && second == 1 && third == 2 && ::lseek(first, 0, SEEK_END) == 0;
    ::setenv("CCL_DEBUG_FILE", (own + ".log").c_str(), 1);
    for (const int fd : {0, 1, 2}) ::close(fd);
    log_reload();  // the log's file gets none of these numbers
    const bool free = ::open("/dev/null", O_RDONLY) == 0;
    log_warn(LogPart::init, "kept");
    ::_exit(same && free ? 0 : 1);
  }
  int status = 1;
  CHECK(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  std::ifstream log{own + ".log"};
  const std::string text{std::istreambuf_iterator<char>{log}, {}};
  CHECK(text.find("kept") != text.npos);
  ::unlink(own.c_str());
  ::unlink((own + ".log").c_str());
}

TEST_CASE("a stream that is closed behind the first line gets no line into a connection") {
  const std::string own = "/tmp/ccl.closed." + std::to_string(::getpid());
  const auto child = ::fork();
  if (child == 0) {
    const int before = ::open((own + ".1").c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600);
    ::dup2(before, 2);
    ::setenv("CCL_DEBUG", "INFO", 1);
    log_reload();
    log_warn(LogPart::init, "seen");
    ::close(2);
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) != 0) ::_exit(2);
    if (ends[0] != 2) ::_exit(3);
    log_warn(LogPart::init, "lost");
    char byte;
    const bool quiet = ::recv(ends[1], &byte, 1, 0) < 0;
    const int after = ::open((own + ".2").c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600);
    ::dup2(after, 2);  // the program's new stream
    log_warn(LogPart::init, "seen again");
    ::_exit(quiet ? 0 : 1);
  }
  int status = 1;
  CHECK(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  const auto text_of = [](const std::string& path) {
    std::ifstream file{path};
    const std::string text{std::istreambuf_iterator<char>{file}, {}};
    ::unlink(path.c_str());
    return text;
  };
  CHECK(text_of(own + ".1").ends_with("WARN INIT seen\n"));
  CHECK(text_of(own + ".2").ends_with("WARN INIT seen again\n"));
}

TEST_CASE("lines of many threads stay whole") {
  const Capture capture{"INFO", "ALL"};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([] {
      for (int i = 0; i < 100; ++i) log_info(LogPart::proxy, "{}", std::string(100, 'x'));
    });
  }
  for (auto& t : threads) t.join();
  const auto lines = capture.lines();
  CHECK(lines.size() == 400);
  for (const auto& line : lines) CHECK(line == prefix() + "INFO PROXY " + std::string(100, 'x'));
}

TEST_CASE("a child that was forked in the midst of another thread's line can log") {
  const pid_t parent = ::fork();  // its log is a pipe that no process reads
  if (parent == 0) {
    ::alarm(60);
    ::setenv("CCL_DEBUG_FILE", "log_test.%h.%p.log", 1);
    const std::string path = Capture::path();
    if (::mkfifo(path.c_str(), 0600) != 0) ::_exit(2);
    const int reader = ::open(path.c_str(), O_RDONLY | O_NONBLOCK);
    log_reload();
    const std::string text(1000, 'x');
    std::thread{[&] {
      for (;;) log_warn(LogPart::init, "{}", text);
    }}.detach();
    const int full = ::fcntl(reader, F_GETPIPE_SZ) - 4096;
    for (int unread = 0; unread < full; ::usleep(10'000)) ::ioctl(reader, FIONREAD, &unread);
    ::usleep(50'000);
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(10);
      log_warn(LogPart::init, "here");
      std::remove(Capture::path().c_str());
      ::_exit(0);
    }
    int status = -1;
    ::waitpid(child, &status, 0);
    std::remove(path.c_str());
    ::_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 3);
  }
  int status = -1;
  ::waitpid(parent, &status, 0);
  CHECK((WIFEXITED(status) ? WEXITSTATUS(status) : 99) == 0);
}

namespace {

// End of a connection between a process that logs and one that reads its log.
struct Talk {
  int fd;
  bool say() const { return ::send(fd, "!", 1, MSG_NOSIGNAL) == 1; }
  bool next_byte() const {
    char said = 0;
    return ::read(fd, &said, 1) == 1;
  }
};

// Runs `body` in a process whose stderr is a pipe; returns its exit status. `read` gets the pipe.
// Both get an end of a connection to the other.
template <class Body, class Read>
int with_stderr_in_a_pipe(Body body, Read read) {
  int ends[2], talk[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return 98;
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, talk) != 0) return 97;
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    ::dup2(ends[1], 2);
    ::close(ends[0]);
    ::close(ends[1]);
    ::close(talk[0]);
    ::setenv("CCL_DEBUG", "INFO", 1);
    ::setenv("CCL_DEBUG_SUBSYS", "ALL", 1);
    ::setenv("CCL_DEBUG_FILE", "stderr", 1);
    log_reload();
    body(Talk{talk[1]});
    std::exit(0);
  }
  ::close(ends[1]);
  ::close(talk[1]);
  read(ends[0], Talk{talk[0]});
  ::close(ends[0]);
  ::close(talk[0]);
  int status = -1;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 99;
}
// Returns the lines until the end of the pipe. `on_line` gets each, and how many came before.
template <class OnLine>
std::vector<std::string> read_lines(int fd, OnLine on_line) {
  std::vector<std::string> lines(1);
  char bytes[4096];
  for (ssize_t n = 0; (n = ::read(fd, bytes, sizeof bytes)) > 0;) {
    for (ssize_t i = 0; i < n; ++i) {
      if (bytes[i] == '\n') {
        on_line(lines.back(), lines.size() - 1);
        lines.emplace_back();
      } else {
        lines.back() += bytes[i];
      }
    }
  }
  lines.pop_back();
  return lines;
}

}  // namespace

TEST_CASE("a slow reader of the log loses nothing, in order") {
  std::vector<std::string> lines;
  // At its end the process waits 1 s for its reader, which a busy machine can keep from reading.
  for (int attempt = 0; attempt < 5 && lines.size() != 500; ++attempt) {
    const int code = with_stderr_in_a_pipe(
        [](Talk talk) {
          for (int i = 0; i < 500; ++i) log_info(LogPart::net, "{} {}", std::string(1000, 'x'), i);
          if (!talk.say()) std::_Exit(3);
        },
        [&](int fd, Talk talk) {
          CHECK(talk.next_byte());  // all lines are logged, and they are more than a pipe holds
          lines = read_lines(fd, [](const std::string&, size_t) {});
        });
    CHECK(code == 0);
  }
  REQUIRE(lines.size() == 500);
  for (size_t i = 0; i < lines.size(); ++i) {
    CHECK(lines[i].substr(lines[i].rfind(' ')) == " " + std::to_string(i));
  }
}

TEST_CASE("a log that nobody reads stops no thread, and the lost lines are counted") {
  std::vector<std::string> lines;
  const int code = with_stderr_in_a_pipe(
      [&](Talk talk) {
        for (int i = 0; i < 3000; ++i) log_info(LogPart::net, "{} {}", std::string(1000, 'x'), i);
        if (!talk.say()) std::_Exit(3);
        if (!talk.next_byte()) std::_Exit(4);
        log_info(LogPart::net, "last 3000");
        if (!talk.next_byte()) std::_Exit(5);  // the last line is read
      },
      [&](int fd, Talk talk) {
        CHECK(talk.next_byte());  // all are logged, without a reader
        lines = read_lines(fd, [&](const std::string& line, size_t before) {
          // Of the 1 MiB of lines that wait, half have left, so that lost ones are reported.
          if (before == 700) CHECK(talk.say());
          if (line.ends_with(" 3000")) CHECK(talk.say());
        });
      });
  CHECK(code == 0);
  REQUIRE(lines.size() > 2);
  CHECK(lines.back().ends_with(" 3000"));
  unsigned long kept = 0, lost = 0, before = 0;
  bool ordered = true;
  for (const auto& line : lines) {
    if (const auto at = line.find(" lines of the log are lost"); at != line.npos) {
      lost += std::stoul(line.substr(line.rfind(' ', at - 1)));
      continue;
    }
    const auto number = std::stoul(line.substr(line.rfind(' ')));
    ordered = ordered && (kept == 0 || number > before);
    before = number;
    ++kept;
  }
  CHECK(ordered);
  CHECK(lost > 0);
  CHECK(kept + lost == 3001);
}

TEST_CASE("a log file that cannot be opened stops no thread, although nobody reads stderr") {
  std::vector<std::string> lines;
  const int code = with_stderr_in_a_pipe(
      [&](Talk talk) {
        const int flags = ::fcntl(2, F_GETFL);
        ::fcntl(2, F_SETFL, flags | O_NONBLOCK);
        while (::write(2, "full\n", 5) == 5) {
        }
        ::fcntl(2, F_SETFL, flags);
        ::setenv("CCL_DEBUG_FILE", "/nowhere/ccl.log", 1);
        log_reload();
        log_warn(LogPart::init, "goes on");
        if (!talk.say()) std::_Exit(3);
        if (!talk.next_byte()) std::_Exit(4);  // the last line is read
      },
      [&](int fd, Talk talk) {
        CHECK(talk.next_byte());  // it went on without a reader; false if it was ended for waiting
        lines = read_lines(fd, [&](const std::string& line, size_t) {
          if (line.ends_with("goes on")) CHECK(talk.say());
        });
      });
  CHECK(code == 0);
  REQUIRE(lines.size() > 2);
  CHECK(lines[lines.size() - 2] == "cannot write the log to /nowhere/ccl.log; it goes to stderr");
  CHECK(lines.back().ends_with("goes on"));
}
