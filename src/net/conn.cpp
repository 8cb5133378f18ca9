#include "net/conn.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/exceptions.hpp"
#include "net/message_rules.hpp"
#include <sys/epoll.h>

namespace ccl::detail::net {
namespace {
constexpr double drain_s = 2;                             // limit of `drain`
constexpr size_t max_unanswered_bytes = size_t{1} << 14;  // a fraction of a socket's buffer
constexpr size_t kept_bytes = size_t{16} << 10;           // of an empty buffer

/// Frees a buffer that a large frame has left empty: a rank of a large job has many connections.
void let_go(std::vector<std::byte>& buffer) {
  if (buffer.empty() && buffer.capacity() > kept_bytes) std::vector<std::byte>{}.swap(buffer);
}
}  // namespace

Result<std::shared_ptr<Conn>> Conn::start(SecureSocket socket, OnFrame frame, OnClosed closed) {
  auto conn = std::make_shared<Conn>(std::move(socket), std::move(frame), std::move(closed));
  CCL_CHECK(Engine::get().add(conn, EPOLLIN));
  return conn;
}

Conn::Conn(SecureSocket socket, OnFrame frame, OnClosed closed)
    : socket_(std::move(socket)), on_frame_(std::move(frame)), on_closed_(std::move(closed)) {}

void Conn::append(FrameKind kind, int rank, std::uint64_t tag, Bytes payload) {
  if (out_.size() - sent_ > max_unsent_bytes) {
    if (!std::exchange(unread_, true)) Engine::get().flush_later(shared_from_this());
    return;
  }
  const FrameHeader header{kind, rank, tag, payload.size()};
  const size_t bytes = out_.size() + sizeof header + payload.size();
  // All of a frame or, without memory, nothing.
  if (bytes > out_.capacity()) out_.reserve(std::max(bytes, 2 * out_.capacity()));
  const auto* at = reinterpret_cast<const std::byte*>(&header);
  out_.insert(out_.end(), at, at + sizeof header);
  out_.insert(out_.end(), payload.begin(), payload.end());
}

void Conn::send(FrameKind kind, int rank, std::uint64_t tag, Bytes payload) {
  if (!is_open() || broken_) return;
  append(kind, rank, tag, payload);
  if (std::exchange(flush_asked_, true)) return;
  const auto self = shared_from_this();
  if (!completes([&] { Engine::get().flush_soon(self); })) flush();
}

void Conn::send_now(FrameKind kind, int rank, std::uint64_t tag, Bytes payload) {
  if (!is_open() || broken_) return;
  append(kind, rank, tag, payload);
  flush();
}

void Conn::send_status(int rank, std::uint64_t tag, Bytes rank_status) {
  if (!is_open() || broken_) return;
  if (unanswered_bytes_ >= max_unanswered_bytes) {
    held_statuses_[rank] = {tag, {rank_status.begin(), rank_status.end()}};
    return;
  }
  held_statuses_.erase(rank);
  unanswered_bytes_ += rank_status.size();
  send_now(FrameKind::rank_status, rank, tag, rank_status);
}

void Conn::flush() {
  flush_asked_ = false;
  if (unread_ && Engine::get().in_engine_thread()) return ended(ENOBUFS);
  while (socket_ && !broken_ && (sent_ < out_.size() || socket_.unsent())) {
    const Bytes rest = Bytes{out_}.subspan(sent_);
    const ssize_t n = rest.empty() ? (socket_.flush() ? 0 : -1) : socket_.send(rest);
    if (n >= 0) {
      sent_ += size_t(n);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      break;
    } else if (errno != EINTR) {
      broken_ = true;  // the connection ends when its last input has been read
    }
  }
  if (sent_ > out_.size() / 2) {
    out_.erase(out_.begin(), out_.begin() + std::ptrdiff_t(std::exchange(sent_, 0)));
  }
  const bool done = broken_ || (out_.empty() && !socket_.unsent());
  if (done) {
    out_.clear();
    sent_ = 0;
    let_go(out_);
  }
  if (socket_ && writable_wanted_ == done) {
    writable_wanted_ = !done;
    Engine::get().watch(*this, done ? EPOLLIN : EPOLLIN | EPOLLOUT);
  }
  if (done && draining_ && !shut_ && socket_) {
    shut_ = true;
    ::shutdown(socket_.get(), SHUT_WR);
  }
}

void Conn::close() {
  Engine::get().remove(*this);
  socket_.reset();
}

void Conn::reject(std::string why) {
  if (!is_open()) return close();
  fault_ = std::move(why);
  on_closed_(*this, EPROTO);
  drain();  // the other end receives the error
}

void Conn::drain() {
  if (!is_open()) return;
  draining_ = true;
  flush();
  const auto tick = [self = shared_from_this(), deadline = Deadline::after(drain_s)] {
    if (self->socket_ && deadline.passed()) self->close();
    return bool(self->socket_);
  };
  if (!without_exceptions([&] { return Engine::get().add_ticker(tick); })) close();
}

void Conn::ready(std::uint32_t events) {
  if ((events & EPOLLOUT) != 0) flush();
  if ((events & ~std::uint32_t{EPOLLOUT}) != 0) read_some();
}

void Conn::read_some() {
  do {
    receive();
  } while (socket_ && socket_.buffered());
}

void Conn::receive() {
  // All connections share the buffer, because the caller holds the engine's mutex. `in_` grows only
  // by the bytes that have arrived.
  static std::byte arrived[size_t{1} << 18];
  const auto n = socket_.recv(arrived);
  const int code = n < 0 ? errno : 0;
  if (n > 0) in_.insert(in_.end(), arrived, arrived + n);
  if (n == 0) return ended(0);
  if (n < 0) {
    if (code != EAGAIN && code != EINTR) ended(code);
    return;
  }
  size_t at = 0;
  while (socket_ && in_.size() - at >= sizeof(FrameHeader)) {
    FrameHeader header;
    std::memcpy(&header, in_.data() + at, sizeof header);
    if (auto why = wrong_header(header); !why.empty()) return reject(std::move(why));
    if (in_.size() - at - sizeof header < header.bytes) break;
    const Bytes payload = Bytes{in_}.subspan(at + sizeof header, header.bytes);
    at += sizeof header + header.bytes;
    take(header, payload);
  }
  in_.erase(in_.begin(), in_.begin() + std::ptrdiff_t(at));
  let_go(in_);
}

void Conn::take(const FrameHeader& header, Bytes payload) {
  received_frame_ = true;
  if (header.kind == FrameKind::goodbye) received_goodbye_ = true;
  if (draining_) return;
  unanswered_bytes_ = 0;
  if (header.kind != FrameKind::receipt) on_frame_(*this, header, payload);
  if (header.kind == FrameKind::rank_status) send_now(FrameKind::receipt, -1, 0, {});
  for (const auto& [rank, kept] : std::exchange(held_statuses_, {}))
    send_status(rank, kept.first, kept.second);
}

void Conn::ended(int os_code) {
  const bool report = !draining_;
  close();
  if (report) on_closed_(*this, os_code);
}

}  // namespace ccl::detail::net
