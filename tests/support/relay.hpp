#pragma once

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <thread>
#include <utility>
#include <vector>

#include "net/socket.hpp"
#include <poll.h>
#include <sys/socket.h>

namespace ccl::test {

/// Attacker between one caller and a listener. It passes everything on and records it.
class Relay {
 public:
  using Wire = std::vector<std::byte>;
  enum class Alters { nothing, caller, listener };

  /// Alters the last byte of each piece that the named end sends after `clean` bytes.
  explicit Relay(const detail::net::Address& to, Alters alters = Alters::nothing,
                 std::size_t clean = 0)
      : alters_{alters}, clean_{clean} {
    using detail::net::Address;
    gate_ = std::move(*detail::net::listen_at(Address::parse("127.0.0.1:0").value()));
    thread_ = std::thread{[this, to] { pass(to); }};
  }
  ~Relay() { stop(); }
  detail::net::Address address() const { return detail::net::bound_address(gate_.get()).value(); }
  void stop() {
    over_ = true;
    if (thread_.joinable()) thread_.join();
  }
  /// True if the caller has sent something.
  bool caller_has_spoken() const { return caller_has_spoken_; }
  // Valid after `stop`.
  Wire by_caller, by_listener;

 private:
  static detail::net::Deadline soon() { return detail::net::Deadline::after(20); }
  void pass(const detail::net::Address& to) {
    if (!detail::net::wait_ready(gate_.get(), POLLIN, soon(), nullptr)) return;
    const detail::Fd caller{::accept4(gate_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)};
    const auto listener = detail::net::connect_once(to, soon(), nullptr);
    if (!listener) return;
    for (const auto deadline = soon(); !over_ && !deadline.passed();) {
      pollfd ends[] = {{caller.get(), POLLIN, 0}, {listener->get(), POLLIN, 0}};
      ::poll(ends, 2, 10);
      if (ends[0].revents != 0 && !move(caller, *listener, by_caller, Alters::caller)) return;
      if (ends[1].revents != 0 && !move(*listener, caller, by_listener, Alters::listener)) return;
    }
  }
  bool move(const detail::Fd& from, const detail::Fd& to, Wire& record, Alters end) {
    Wire some(65536);
    const ssize_t n = ::recv(from.get(), some.data(), some.size(), MSG_DONTWAIT);
    if (n <= 0) return n < 0 && errno == EAGAIN;
    some.resize(std::size_t(n));
    if (alters_ == end && record.size() + some.size() > clean_) {
      some.back() ^= std::byte{1};
    }
    record.insert(record.end(), some.begin(), some.end());
    if (end == Alters::caller) caller_has_spoken_ = true;
    return detail::net::send_all(to.get(), some.data(), Index(some.size()), soon(), nullptr)
        .has_value();
  }

  const Alters alters_;
  const std::size_t clean_;
  detail::Fd gate_;
  std::atomic<bool> over_{false}, caller_has_spoken_{false};
  std::thread thread_;
};

}  // namespace ccl::test
