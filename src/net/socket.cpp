#include "net/socket.hpp"

#include <ccl/detail/runtime/settings.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/io/os_error.hpp"
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>

namespace ccl::detail::net {
namespace {

Error error_of(Errc code, std::string what, int os_code = 0) {
  Error e;
  e.code = code;
  e.what = std::move(what);
  e.os_code = os_code;
  return e;
}

bool again() {
  return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

}  // namespace

Error system_error(std::string what, int os_code) {
  return ccl::detail::os_error(Errc::network, fmt::format("{} ({})", what, std::strerror(os_code)),
                               os_code);
}

Result<void> wait_ready(int fd, short events, const Deadline& deadline, const Status* status) {
  for (;;) {
    if (status != nullptr) CCL_CHECK(status->result());
    pollfd p{fd, events, 0};
    const int wait_ms = int(std::min(50.0, deadline.left_s() * 1000 + 1));
    const int n = ::poll(&p, 1, wait_ms);
    if (n > 0) return {};
    if (n < 0 && errno != EINTR) return fail(system_error("cannot wait for a connection", errno));
    if (deadline.passed()) {
      return fail(Errc::timed_out, "no progress on a connection (the other end is late or gone)");
    }
  }
}

Result<void> send_all(int fd, const void* data, Index bytes, const Deadline& deadline,
                      const Status* status) {
  const auto* at = static_cast<const std::byte*>(data);
  while (bytes > 0) {
    const auto n = ::send(fd, at, size_t(bytes), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n >= 0) {
      at += n;
      bytes -= n;
    } else if (again()) {
      CCL_CHECK(wait_ready(fd, POLLOUT, deadline, status));
    } else {
      return fail(system_error("cannot send", errno));
    }
  }
  return {};
}

Result<void> recv_all(int fd, void* data, Index bytes, const Deadline& deadline,
                      const Status* status) {
  auto* at = static_cast<std::byte*>(data);
  while (bytes > 0) {
    const auto n = ::recv(fd, at, size_t(bytes), MSG_DONTWAIT);
    if (n > 0) {
      at += n;
      bytes -= n;
    } else if (n == 0) {
      return fail(error_of(Errc::network, "the other end closed the connection"));
    } else if (again()) {
      CCL_CHECK(wait_ready(fd, POLLIN, deadline, status));
    } else {
      return fail(system_error("cannot receive", errno));
    }
  }
  return {};
}

Result<Fd> listen_at(const Address& where) {
  Fd fd{::socket(where.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  if (!fd) return fail(system_error("cannot create a socket", errno));
  const int on = 1;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(fd.get(), where.data(), where.bytes()) != 0 || ::listen(fd.get(), 4096) != 0) {
    return fail(system_error(fmt::format("cannot listen at {}", where.to_string()), errno));
  }
  return fd;
}

Result<Address> bound_address(int fd) {
  sockaddr_storage s{};
  socklen_t bytes = sizeof s;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&s), &bytes) != 0) {
    return fail(system_error("cannot read a socket's address", errno));
  }
  return Address{reinterpret_cast<const sockaddr*>(&s), bytes};
}

void send_close_notify(int fd, std::span<const std::byte> close_notify) {
  (void)::send(fd, close_notify.data(), close_notify.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

Result<Fd> connect_once(const Address& where, const Deadline& deadline, const Status* status,
                        std::span<const std::byte> close_notify) {
  Fd fd{::socket(where.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  if (!fd) return fail(system_error("cannot create a socket", errno));
  const auto cannot = [&](int code) {
    return fail(system_error(fmt::format("cannot connect to {}", where.to_string()), code));
  };
  if (::connect(fd.get(), where.data(), where.bytes()) != 0) {
    if (errno != EINPROGRESS && errno != EINTR) return cannot(errno);
    if (auto ready = wait_ready(fd.get(), POLLOUT, deadline, status); !ready) {
      if (!close_notify.empty()) send_close_notify(fd.get(), close_notify);
      return fail(std::move(ready).error());
    }
    int code = 0;
    socklen_t bytes = sizeof code;
    ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &code, &bytes);
    if (code != 0) return cannot(code);
  }
  if (where.family() != AF_UNIX) {
    // A connect to a free port of the own host can connect to itself.
    CCL_TRY(const Address mine, bound_address(fd.get()));
    if (mine == where) return cannot(ECONNREFUSED);
  }
  tune_connection(fd.get());
  return fd;
}

void tune_connection(int fd) {
  const int on = 1;
  const int idle_s = int(setting_integer("BOOTSTRAP_KEEPALIVE").value_or(20));
  const int probes = std::max(2, idle_s / 2);  // a second apart: a host may be away for a moment
  const int user_timeout_ms = (idle_s + probes) * 1000;  // the same limit for unacknowledged data
  if (::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0) return;
  ::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &on, sizeof on);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
  ::setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &user_timeout_ms, sizeof user_timeout_ms);
}

}  // namespace ccl::detail::net
