#include "base/io/nonblocking_write.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <climits>

#include "base/io/fd.hpp"
#include "base/io/no_broken_pipe.hpp"
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>

namespace ccl::detail {
namespace {

bool not_supported(int code) {
  return code == EOPNOTSUPP || code == ENOSYS || code == EINVAL || code == ESPIPE;
}

/// Without RWF_NOWAIT: a second open file of the same pipe or terminal has flags of its own.
ssize_t write_reopened(int fd, std::string_view text) {
  char path[32] = {};
  fmt::format_to_n(path, sizeof path - 1, "/proc/self/fd/{}", fd);
  const Fd again{::open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)};
  if (again) return ::write(again.get(), text.data(), text.size());
  // Without /proc or a free descriptor. Another process can fill the pipe between the two calls.
  pollfd room{fd, POLLOUT, 0};
  if (::poll(&room, 1, 0) > 0) {
    return ::write(fd, text.data(), std::min<std::size_t>(text.size(), PIPE_BUF));
  }
  errno = EAGAIN;
  return -1;
}

}  // namespace

ssize_t write_without_blocking(int fd, std::string_view text) {
  struct stat file {};
  if (::fstat(fd, &file) != 0) return -1;
  if (S_ISSOCK(file.st_mode)) {
    return ::send(fd, text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  }
  if (!S_ISFIFO(file.st_mode) && !S_ISCHR(file.st_mode)) {
    return ::write(fd, text.data(), text.size());
  }
  const NoBrokenPipe no_signal;
  const iovec all{const_cast<char*>(text.data()), text.size()};
  const ssize_t written = ::pwritev2(fd, &all, 1, -1, RWF_NOWAIT);
  return written < 0 && not_supported(errno) ? write_reopened(fd, text) : written;
}

}  // namespace ccl::detail
