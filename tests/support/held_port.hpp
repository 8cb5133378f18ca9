#pragma once

#include <stdexcept>
#include <string>

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace ccl::test {

/// TCP port of this host on which ranks may listen. During its lifetime the system gives the port
/// to no socket that requests any port: a socket is bound to it and does not listen.
class HeldPort {
 public:
  HeldPort() {
    sockaddr_in6 both{};  // any address, of IPv4, too
    both.sin6_family = AF_INET6;
    sockaddr_in old{};
    old.sin_family = AF_INET;
    number_ = hold(both);
    if (number_ == 0) number_ = hold(old);
    if (number_ == 0) throw std::runtime_error{"no free port"};
  }
  ~HeldPort() { ::close(fd_); }
  HeldPort(const HeldPort&) = delete;
  HeldPort& operator=(const HeldPort&) = delete;

  int number() const { return number_; }
  std::string text() const { return std::to_string(number_); }

 private:
  template <class At>
  int hold(At at) {
    auto* const address = reinterpret_cast<sockaddr*>(&at);
    socklen_t bytes = sizeof at;
    const int on = 1;  // without it no rank could listen on the port
    fd_ = ::socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd_ >= 0 && ::setsockopt(fd_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
        ::bind(fd_, address, bytes) == 0 && ::getsockname(fd_, address, &bytes) == 0) {
      // The port has the same place in both kinds of address.
      return ntohs(reinterpret_cast<const sockaddr_in*>(address)->sin_port);
    }
    if (fd_ >= 0) ::close(fd_);
    return 0;
  }

  int fd_ = -1, number_ = 0;
};

}  // namespace ccl::test
