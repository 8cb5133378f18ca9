#pragma once

#include <ccl/detail/base/status.hpp>

#include <memory>
#include <span>

#include "base/io/fd.hpp"
#include "net/crypto/encryption.hpp"
#include "net/socket.hpp"
#include <sys/uio.h>

namespace ccl::detail::net {

/// Socket of a connection after its handshake. If the session is protected, it sends and receives
/// records, else bytes as they are. Non-blocking; one thread at a time.
class SecureSocket {
 public:
  SecureSocket();
  /// A socket without protection.
  SecureSocket(Fd fd);
  SecureSocket(Fd fd, const SessionKeys& keys);
  ~SecureSocket();
  SecureSocket(SecureSocket&&) noexcept;
  SecureSocket& operator=(SecureSocket&&) noexcept;

  int get() const { return fd_.get(); }
  explicit operator bool() const { return bool(fd_); }
  void reset();
  /// Returns the same connection with a descriptor of its own, or a closed socket with errno. Only
  /// one of both may send, and only the other may receive.
  SecureSocket duplicate() const;

  /// Takes bytes and returns their number, or -1 and errno. The socket can keep a part of what it
  /// took: `flush` sends the rest when the descriptor is writable.
  ssize_t send(std::span<const iovec> parts);
  ssize_t send(Bytes bytes);
  bool unsent() const;
  /// Sends the rest. Returns false and errno if some is left.
  bool flush();

  /// Returns the number of bytes received, 0 at the end, or -1 and errno. `EBADMSG`: a record is
  /// not what the other end sent next. `EPROTO`: the connection ended within a record.
  ssize_t recv(std::span<const iovec> parts);
  ssize_t recv(std::span<std::byte> to);
  /// True if `recv` has bytes without asking the system. The descriptor need not be readable.
  bool buffered() const;
  /// True if the last `recv` emptied the system's buffer.
  bool drained() const;

 private:
  struct Records;
  ssize_t open_records(std::span<const iovec> parts);
  bool refill();

  Fd fd_;
  std::unique_ptr<Records> records_;  // null: no protection
  bool drained_ = false;
};

/// Receives all bytes of `to`, or fails: see `recv_all` of a descriptor.
Result<void> recv_all(SecureSocket& socket, std::span<std::byte> to, const Deadline& deadline,
                      const Status* status);

/// Returns the sentence for `EBADMSG` and `EPROTO` of `recv`, or null.
const char* broken_record(int os_code);

}  // namespace ccl::detail::net
