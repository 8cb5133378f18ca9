#include "observe/health/listener.hpp"

#include <ccl/comm/log.hpp>

#include <fmt/format.h>

#include <cerrno>
#include <string_view>

#include "net/address.hpp"
#include "net/socket.hpp"
#include <netinet/in.h>
#include <sys/socket.h>

namespace ccl::detail::health {
namespace {
constexpr int backlog = 32;
constexpr double resolve_limit_s = 5;
}  // namespace

Result<void> Listener::open(const std::string& address) {
  constexpr std::string_view local = "localhost:";
  const bool is_local = address.starts_with(local);
  CCL_TRY(const net::Address where,
          net::Address::parse(is_local ? "127.0.0.1:" + address.substr(local.size()) : address, 0,
                              resolve_limit_s));
  if (where.family() != AF_INET && where.family() != AF_INET6) {
    return fail(Errc::bad_setting, fmt::format("{} is no address with a port", address));
  }
  Fd fd{::socket(where.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  if (!fd) return fail(net::system_error("cannot make a socket", errno));
  const int yes = 1;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEPORT, &yes, sizeof yes);
  if (::bind(fd.get(), where.data(), where.bytes()) != 0 || ::listen(fd.get(), backlog) != 0) {
    return fail(net::system_error("cannot listen at " + where.to_string(), errno));
  }
  log_info(LogPart::init, "answers at {} about its communicators{}", where.to_string(),
           where.loopback() ? "" : "; who reaches that address can read the state of the job");
  fd_ = std::move(fd);
  return {};
}

int Listener::fd() const {
  if (!fd_) return -1;
  const bool full =
      in_window_ >= max_in_window && std::chrono::steady_clock::now() - window_begin_ < window;
  return full ? -1 : fd_.get();
}

Fd Listener::accept() {
  const auto now = std::chrono::steady_clock::now();
  if (now - window_begin_ >= window) {
    window_begin_ = now;
    in_window_ = 0;
  }
  ++in_window_;
  Fd caller{::accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)};
  if (!caller) return caller;
  const int yes = 1;
  ::setsockopt(caller.get(), SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof yes);
  return caller;
}

}  // namespace ccl::detail::health
