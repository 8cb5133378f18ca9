#pragma once

#include <string_view>
#include <utility>

#include "base/io/fd.hpp"
#include "net/socket.hpp"
#include "observe/health/session.hpp"

namespace ccl::detail::health {

/// Connection of one client. No call blocks.
class Client {
 public:
  static constexpr auto idle_limit = std::chrono::seconds{60};   // without a command
  static constexpr auto stuck_limit = std::chrono::seconds{10};  // without reading its answer
  static constexpr auto linger_limit = std::chrono::seconds{1};  // after the answer

  explicit Client(Fd fd) : fd_{std::move(fd)} {}
  int fd() const { return fd_.get(); }
  Session& session() { return session_; }
  const Session& session() const { return session_; }
  net::Clock::time_point active() const { return active_; }

  /// Events to poll for.
  short wanted() const;
  /// Moves bytes, a limited number in each direction.
  void serve(short events);
  /// True if the connection is over or has taken too long.
  bool is_over() const;
  Fd release() { return std::move(fd_); }

 private:
  void read();
  void write();
  void linger();

  Fd fd_;
  Session session_;
  net::Clock::time_point active_ = net::Clock::now();
  bool lingers_ = false;  // all is sent; what the client still sends is dropped until it closes
  bool over_ = false;
};

}  // namespace ccl::detail::health
