#include "base/io/file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>

#include "base/io/fd.hpp"
#include "base/io/no_broken_pipe.hpp"
#include "base/io/os_error.hpp"
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

namespace ccl::detail {
namespace {

constexpr int pipe_limit_ms = 5000;  // for the process at the other end of a pipe
constexpr std::size_t piece_bytes = std::size_t{1} << 16;
constexpr std::size_t max_bytes = std::size_t{64} << 20;

// A pipe whose other end is not open must not block.
constexpr int common_flags = O_CLOEXEC | O_NONBLOCK | O_NOCTTY;

auto cannot(const char* what, const std::string& path, const char* look_at, int os_code) {
  return fail(os_error(Errc::system,
                       fmt::format("cannot {} {} ({}); check the {} and permissions", what, path,
                                   std::strerror(os_code), look_at),
                       os_code));
}

/// Waits for the other end of a pipe after `EAGAIN`.
Result<void> await_other_end(int fd, short events, const std::string& path) {
  pollfd pipe{fd, events, 0};
  if (::poll(&pipe, 1, pipe_limit_ms) != 0) return {};
  return fail(Errc::timed_out,
              fmt::format("{} is a pipe, and its other end did not {} for {} s; name another file, "
                          "or look at the process there",
                          path, events == POLLIN ? "write" : "read", pipe_limit_ms / 1000));
}

}  // namespace

Result<std::string> whole_file(const std::string& path) {
  const Fd file{::open(path.c_str(), O_RDONLY | common_flags)};
  if (!file) return cannot("read", path, "name", errno);
  std::string text;
  while (text.size() <= max_bytes) {
    const std::size_t had = text.size();
    text.resize(had + piece_bytes);
    const ssize_t n = ::read(file.get(), text.data() + had, piece_bytes);
    const int code = n < 0 ? errno : 0;
    text.resize(had + std::size_t(std::max<ssize_t>(n, 0)));
    if (n == 0) return text;
    if (code == EAGAIN) {
      CCL_CHECK(await_other_end(file.get(), POLLIN, path));
    } else if (code != 0 && code != EINTR) {
      return cannot("read", path, "name", code);
    }
  }
  return fail(Errc::invalid_argument,
              fmt::format("{} is too long (it goes on after {} bytes); name another file", path,
                          max_bytes));
}

std::string first_line(const std::string& path) {
  auto text = whole_file(path);
  if (!text) return {};
  text->resize(std::min(text->find('\n'), text->size()));
  return *std::move(text);
}

Result<void> write_whole_file(const std::string& path, std::string_view text) {
  const Fd file{::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | common_flags, 0666)};
  if (!file) return cannot("write", path, "folder", errno);
  const NoBrokenPipe no_signal;
  while (!text.empty()) {
    const ssize_t n = ::write(file.get(), text.data(), text.size());
    if (n >= 0) {
      text.remove_prefix(std::size_t(n));
    } else if (errno == EAGAIN) {
      CCL_CHECK(await_other_end(file.get(), POLLOUT, path));
    } else if (errno != EINTR) {
      return cannot("write", path, "folder", errno);
    }
  }
  return {};
}

Result<void> replace_whole_file(const std::string& path, std::string_view text) {
  // In the same folder, under a name that no reader of the folder looks for. The file's own name
  // and the time are in it: processes of several hosts or containers may have one pid and folder.
  static std::atomic<unsigned> files{0};
  const std::size_t name = path.rfind('/') + 1;
  const std::string next =
      fmt::format("{}.{}.{}.{}.{}.new", path.substr(0, name), path.substr(name), ::getpid(),
                  std::chrono::system_clock::now().time_since_epoch().count(), files.fetch_add(1));
  auto written = write_whole_file(next, text);
  if (written && std::rename(next.c_str(), path.c_str()) != 0) {
    written = cannot("write", path, "folder", errno);
  }
  if (!written) ::unlink(next.c_str());
  return written;
}

}  // namespace ccl::detail
