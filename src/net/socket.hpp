#pragma once

#include <ccl/types/result.hpp>
#include <ccl/detail/base/status.hpp>
#include <ccl/types/word.hpp>

#include <chrono>
#include <cstddef>
#include <span>

#include "net/address.hpp"
#include "base/fd.hpp"

namespace ccl::detail::net {

using Clock = std::chrono::steady_clock;

/// A moment after which waiting is over.
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

/// All sockets are non-blocking; waits are polls in slices of 50 ms, between which `status` (may be
/// null) is asked.
Result<void> wait_ready(int fd, short events, const Deadline& deadline, const Status* status);
Result<void> send_all(int fd, const void* data, Index bytes, const Deadline& deadline,
                      const Status* status);
/// The end of the stream is `Errc::network` with `os_code` 0.
Result<void> recv_all(int fd, void* data, Index bytes, const Deadline& deadline,
                      const Status* status);

/// A listening socket. Port 0: any free one.
Result<Fd> listen_at(const Address& where);
Result<Address> bound_address(int fd);
/// One attempt. A refused connection is an error with `os_code` ECONNREFUSED.
/// `close_notify` goes to whoever has answered nevertheless when it gives up, as far as that can be.
Result<Fd> connect_once(const Address& where, const Deadline& deadline, const Status* status,
                        std::span<const std::byte> close_notify = {});
/// Sends it without waiting, before a connection is closed.
void say_last(int fd, std::span<const std::byte> close_notify);
/// No delay for small messages; keep-alives for hosts that fall silent. Nothing on Unix sockets.
void tune_connection(int fd);

Error system_error(std::string what, int os_code);

}  // namespace ccl::detail::net
