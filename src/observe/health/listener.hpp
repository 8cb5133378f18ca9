#pragma once

#include <ccl/types/result.hpp>

#include <chrono>
#include <string>

#include "base/io/fd.hpp"

namespace ccl::detail::health {

/// Socket at which a process listens for clients. Processes of one user share the port.
class Listener {
 public:
  /// Listens at "host:port". Resolving a name may block.
  Result<void> open(const std::string& address);
  void close() { fd_ = {}; }
  /// Descriptor to poll; -1 without a socket, and while callers come too fast.
  int fd() const;
  /// True if connections wait until `fd` may be polled again.
  bool is_held() const { return fd_ && fd() < 0; }
  /// Accepts a connection, or returns an empty descriptor.
  Fd accept();
  /// Descriptor of the socket, for a forked child.
  int socket() const { return fd_ ? fd_.get() : -1; }

 private:
  static constexpr int max_in_window = 64;
  static constexpr auto window = std::chrono::milliseconds{100};
  Fd fd_;
  std::chrono::steady_clock::time_point window_begin_{};
  int in_window_ = 0;
};

}  // namespace ccl::detail::health
