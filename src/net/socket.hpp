#pragma once

#include <ccl/detail/base/status.hpp>
#include <ccl/types/result.hpp>
#include <ccl/types/word.hpp>

#include <chrono>
#include <cstddef>
#include <span>

#include "base/io/fd.hpp"
#include "net/address.hpp"

namespace ccl::detail::net {

using Clock = std::chrono::steady_clock;

/// Time at which a wait ends.
class Deadline {
 public:
  static Deadline after(double seconds) {
    Deadline d;
    d.at_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                               std::chrono::duration<double>(std::min(seconds, 1e8)));
    return d;
  }
  bool passed() const { return Clock::now() >= at_; }
  Clock::time_point at() const { return at_; }
  double left_s() const {
    return std::max(0.0, std::chrono::duration<double>(at_ - Clock::now()).count());
  }

 private:
  Clock::time_point at_ = Clock::time_point::max();
};

/// Waits until a non-blocking socket is ready. It polls in slices of 50 ms and reads `status`,
/// which may be null, between them. `send_all` and `recv_all` wait in the same way.
Result<void> wait_ready(int fd, short events, const Deadline& deadline, const Status* status);
Result<void> send_all(int fd, const void* data, Index bytes, const Deadline& deadline,
                      const Status* status);
/// Fails with `Errc::network` and `os_code` 0 at the end of the stream.
Result<void> recv_all(int fd, void* data, Index bytes, const Deadline& deadline,
                      const Status* status);

/// Creates a listening socket. Port 0 selects a free port.
Result<Fd> listen_at(const Address& where);
Result<Address> bound_address(int fd);
/// Tries once to connect. A refused connection is an error with `os_code` ECONNREFUSED. If it gives
/// up while the other end answers, it sends `close_notify` if possible.
Result<Fd> connect_once(const Address& where, const Deadline& deadline, const Status* status,
                        std::span<const std::byte> close_notify = {});
/// Sends `close_notify` without blocking, for a connection that is closed next.
void send_close_notify(int fd, std::span<const std::byte> close_notify);
/// Sets TCP_NODELAY, and keep-alive probes that detect dead hosts. It does nothing on Unix sockets.
void tune_connection(int fd);

Error system_error(std::string what, int os_code);

}  // namespace ccl::detail::net
