#include "net/secure_socket.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

namespace ccl::detail::net {
namespace {

constexpr size_t record_room = record_head_bytes + max_record_bytes + record_tag_bytes;
constexpr size_t records_per_call = 4;
constexpr size_t first_read_bytes = 4096;
constexpr int data_flags = MSG_DONTWAIT | MSG_NOSIGNAL;

/// Position in the bytes of several parts.
class PartsCursor {
 public:
  explicit PartsCursor(std::span<const iovec> parts) : parts_(parts) { skip_empty(); }
  bool at_end() const { return part_ == parts_.size(); }
  /// The contiguous bytes at this position.
  std::span<std::byte> contiguous() const {
    const iovec& part = parts_[part_];
    return {static_cast<std::byte*>(part.iov_base) + offset_, part.iov_len - offset_};
  }
  /// Copies the next bytes of all parts.
  void copy(std::byte* to, size_t bytes) {
    while (bytes > 0) {
      const auto piece = contiguous().first(std::min(contiguous().size(), bytes));
      std::memcpy(to, piece.data(), piece.size());
      to += piece.size();
      bytes -= piece.size();
      advance(piece.size());
    }
  }
  void advance(size_t bytes) {
    offset_ += bytes;
    if (offset_ == parts_[part_].iov_len) {
      ++part_;
      offset_ = 0;
      skip_empty();
    }
  }

 private:
  void skip_empty() {
    while (part_ < parts_.size() && parts_[part_].iov_len == 0) ++part_;
  }
  std::span<const iovec> parts_;
  size_t part_ = 0, offset_ = 0;
};

size_t bytes_of_parts(std::span<const iovec> parts) {
  size_t bytes = 0;
  for (const iovec& part : parts) bytes += part.iov_len;
  return bytes;
}

ssize_t send_plain(int fd, std::span<const iovec> parts) {
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(parts.data());
  message.msg_iovlen = parts.size();
  return ::sendmsg(fd, &message, data_flags);
}

}  // namespace

struct SecureSocket::Records {
  explicit Records(const SessionKeys& session)
      : keys(session),
        sealer(keys.encryption, keys.aes, keys.out),
        opener(keys.encryption, keys.aes, keys.in) {}

  const SessionKeys keys;
  RecordCipher sealer, opener;
  // Both buffers grow to what the connection carries at once, and stay so.
  std::vector<std::byte> out;
  size_t sent = 0, sealed = 0;  // bytes of `out` that are gone, and that are sealed
  std::vector<std::byte> in;
  size_t begin = 0, end = 0;        // range of the received records in `in`
  size_t body = 0, body_bytes = 0;  // rest of an opened body in `in`, before `begin`
  int broken = 0;                   // the error that ended receiving

  size_t ready() const { return end - begin; }
  /// Bytes of the record at `begin`, or 0 while its head is missing.
  size_t record_bytes() const {
    if (ready() < record_head_bytes) return 0;
    return record_head_bytes + RecordCipher::body_bytes(in.data() + begin) + record_tag_bytes;
  }
  bool whole_record() const { return record_bytes() != 0 && ready() >= record_bytes(); }
  bool too_long() const { return record_bytes() > record_room; }

  /// Moves the received records to the front and makes room for the rest of the first one.
  void make_room() {
    if (begin > 0 && ready() > 0) std::memmove(in.data(), in.data() + begin, ready());
    end -= std::exchange(begin, 0);
    const size_t full = in.size() == end ? 2 * in.size() : in.size();
    const size_t wanted = std::max({first_read_bytes, full, record_bytes()});
    if (wanted > in.size()) in.resize(std::min(wanted, records_per_call * record_room));
  }
  /// Seals the next bytes of `from`. Returns their number, at most `max_record_bytes`.
  size_t seal(PartsCursor& from, size_t at_most) {
    const size_t most = std::min(at_most, max_record_bytes);
    const size_t needed = sealed + record_head_bytes + most + record_tag_bytes;
    if (out.size() < needed) out.resize(needed);
    std::byte* const record = out.data() + sealed;
    Bytes body_at = from.contiguous().first(std::min(from.contiguous().size(), most));
    if (body_at.size() == most) {  // sealed from where it is
      from.advance(most);
    } else {
      body_at = {record + record_head_bytes, most};
      from.copy(record + record_head_bytes, most);
    }
    sealer.seal(body_at, record);
    sealed = needed;
    return most;
  }
};

SecureSocket::SecureSocket() = default;
SecureSocket::SecureSocket(Fd fd) : fd_(std::move(fd)) {}
SecureSocket::SecureSocket(Fd fd, const SessionKeys& keys) : fd_(std::move(fd)) {
  if (keys.encryption != Encryption::off) records_ = std::make_unique<Records>(keys);
}
SecureSocket::~SecureSocket() = default;
SecureSocket::SecureSocket(SecureSocket&&) noexcept = default;
SecureSocket& SecureSocket::operator=(SecureSocket&&) noexcept = default;

void SecureSocket::reset() {
  fd_.reset();
  records_.reset();
}

SecureSocket SecureSocket::duplicate() const {
  Fd own{::fcntl(fd_.get(), F_DUPFD_CLOEXEC, 0)};
  if (!own) return {};
  return records_ ? SecureSocket{std::move(own), records_->keys} : SecureSocket{std::move(own)};
}

bool SecureSocket::unsent() const {
  return records_ && records_->sent < records_->sealed;
}

bool SecureSocket::flush() {
  while (unsent()) {
    const auto n = ::send(fd_.get(), records_->out.data() + records_->sent,
                          records_->sealed - records_->sent, data_flags);
    if (n < 0 && errno != EINTR) return false;
    if (n > 0) records_->sent += size_t(n);
  }
  if (records_) records_->sent = records_->sealed = 0;
  return true;
}

ssize_t SecureSocket::send(Bytes bytes) {
  const iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
  return send({&part, 1});
}

ssize_t SecureSocket::send(std::span<const iovec> parts) {
  if (!records_) return send_plain(fd_.get(), parts);
  if (!flush()) return -1;
  PartsCursor from{parts};
  const size_t all = bytes_of_parts(parts);
  size_t taken = 0;
  for (size_t n = 0; n < records_per_call && taken < all; ++n) {
    taken += records_->seal(from, all - taken);
  }
  if (!flush() && errno != EAGAIN && errno != EWOULDBLOCK) return -1;
  return ssize_t(taken);
}

ssize_t SecureSocket::recv(std::span<std::byte> to) {
  const iovec part{to.data(), to.size()};
  return recv({&part, 1});
}

ssize_t SecureSocket::recv(std::span<const iovec> parts) {
  if (records_) return open_records(parts);
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(parts.data());
  message.msg_iovlen = parts.size();
  const ssize_t n = ::recvmsg(fd_.get(), &message, MSG_DONTWAIT);
  drained_ = n < ssize_t(bytes_of_parts(parts));
  return n;
}

bool SecureSocket::buffered() const {
  if (!records_) return false;
  return records_->body_bytes > 0 || records_->whole_record() || records_->too_long();
}

bool SecureSocket::drained() const {
  return drained_ && !buffered();
}

// Reads sealed bytes. Returns false and errno, or 0 in errno at the end.
bool SecureSocket::refill() {
  Records& r = *records_;
  r.make_room();
  const size_t room = r.in.size() - r.end;
  const ssize_t n = ::recv(fd_.get(), r.in.data() + r.end, room, MSG_DONTWAIT);
  drained_ = n < ssize_t(room);
  if (n == 0) errno = r.ready() == 0 ? 0 : EPROTO;
  if (n <= 0) return false;
  r.end += size_t(n);
  return true;
}

ssize_t SecureSocket::open_records(std::span<const iovec> parts) {
  Records& r = *records_;
  PartsCursor to{parts};
  size_t given = 0;
  drained_ = false;  // more may have arrived since the system was asked
  while (!to.at_end() && r.broken == 0) {
    if (r.body_bytes > 0) {
      const size_t bytes = std::min(to.contiguous().size(), r.body_bytes);
      std::memcpy(to.contiguous().data(), r.in.data() + r.body, bytes);
      r.body += bytes;
      r.body_bytes -= bytes;
      to.advance(bytes);
      given += bytes;
      continue;
    }
    if (!r.whole_record() && !r.too_long()) {
      if (given > 0) break;  // a call asks the system once at most after bytes
      if (refill()) continue;
      if (errno == 0) return 0;
      if (errno == EPROTO) r.broken = EPROTO;
      return -1;
    }
    const Bytes record{r.in.data() + r.begin, r.too_long() ? 0 : r.record_bytes()};
    const size_t bytes = record.empty() ? 0 : RecordCipher::body_bytes(record.data());
    // The body opens where it is wanted, if it fits there. An empty one, which no sender makes, is
    // an error: they would hold the caller as long as they come.
    const bool straight = bytes <= to.contiguous().size();
    std::byte* const body =
        straight ? to.contiguous().data() : r.in.data() + r.begin + record_head_bytes;
    if (bytes == 0 || !r.opener.open(record, body)) {
      r.broken = EBADMSG;
      break;
    }
    r.body = r.begin + record_head_bytes;
    r.begin += record.size();
    r.body_bytes = straight ? 0 : bytes;
    if (straight) to.advance(bytes);
    if (straight) given += bytes;
  }
  if (given > 0 || r.broken == 0) return ssize_t(given);
  errno = r.broken;
  return -1;
}

Result<void> recv_all(SecureSocket& socket, std::span<std::byte> to, const Deadline& deadline,
                      const Status* status) {
  while (!to.empty()) {
    const auto n = socket.recv(to);
    if (n > 0) {
      to = to.subspan(size_t(n));
    } else if (n == 0) {
      return fail(Errc::network, "the other end closed the connection");
    } else if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) {
      CCL_CHECK(wait_ready(socket.get(), POLLIN, deadline, status));
    } else {
      Error error;
      error.code = Errc::network;
      error.os_code = errno;
      error.what = broken_record(errno) != nullptr ? broken_record(errno) : "cannot receive";
      return fail(std::move(error));
    }
  }
  return {};
}

const char* broken_record(int os_code) {
  if (os_code == EBADMSG) {
    return "what arrived is not what was sent: a record was altered, repeated or left out on the "
           "way";
  }
  if (os_code == EPROTO) return "the connection was cut within a record";
  return nullptr;
}

}  // namespace ccl::detail::net
