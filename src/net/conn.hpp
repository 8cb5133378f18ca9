#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "net/crypto/sha256.hpp"
#include "net/engine.hpp"
#include "net/secure_socket.hpp"

namespace ccl::detail::net {

/// Kind of a frame.
enum class FrameKind : std::uint32_t {
  message = 1,  // message with a tag, between any two ranks
  part,         // part of an all-gather: `rank` owns it, `tag` is the number of the call
  token,        // token of a barrier: `rank` is the round, `tag` is the number of the call
  next,         // root to rank: the next rank in the ring
  progress,     // root to rank: number of ranks that have joined
  formed,       // rank to root: this rank's neighbors are connected
  release,      // root to rank: the ring is complete
  notice,       // error: a rank is lost or has aborted
  goodbye,      // graceful end of the sender
  rank_status,  // status of `rank`; `tag` counts its statuses
  receipt,      // acknowledges a status at the other end of the connection
  departure     // the process of `rank` ends in order; its ranks need nothing more
};

constexpr std::uint64_t max_message_bytes = std::uint64_t{64} << 20;  // payload; also of a part
constexpr std::uint64_t max_status_bytes = std::uint64_t{64} << 10;

struct FrameHeader {
  FrameKind kind = FrameKind::message;
  std::int32_t rank = -1;
  std::uint64_t tag = 0;
  std::uint64_t bytes = 0;  // payload bytes that follow
};

/// Authenticated connection that carries frames. The engine's thread reads them. The caller must
/// hold the engine's mutex in all calls.
class Conn : public Handler, public std::enable_shared_from_this<Conn> {
 public:
  using OnFrame = std::function<void(Conn&, const FrameHeader&, Bytes)>;
  using OnClosed = std::function<void(Conn&, int os_code)>;
  /// `closed` is called once when the other end has closed, but not after `close` or `drain`.
  /// `os_code` is an errno; `broken_record` explains those of a protected connection.
  static Result<std::shared_ptr<Conn>> start(SecureSocket socket, OnFrame frame, OnClosed closed);
  Conn(SecureSocket socket, OnFrame frame, OnClosed closed);

  void send(FrameKind kind, int rank, std::uint64_t tag, Bytes payload);
  /// Sends as `send`, and writes as many bytes as the socket accepts before it returns.
  void send_now(FrameKind kind, int rank, std::uint64_t tag, Bytes payload);
  /// Sends a status. After 16 KiB without an answer, it keeps only the latest status of each rank
  /// until the other end answers. The kernel closes a connection that is full for some seconds, so
  /// more bytes would fail a stopped rank.
  void send_status(int rank, std::uint64_t tag, Bytes rank_status);
  void close();
  /// Ends the connection, because its other end has sent what does not fit. Calls `closed` with
  /// EPROTO, which may still send the other end an error. `fault` returns `why` from then on.
  void reject(std::string why);
  const std::string& fault() const { return fault_; }
  /// Sends all queued bytes, then reads until the other end closes, at most 2 s. A close with
  /// unread input would discard output that is in flight.
  void drain();
  bool is_open() const { return bool(socket_) && !draining_; }
  /// True from `drain` until the other end has closed, too.
  bool is_draining() const { return bool(socket_) && draining_; }
  bool received_goodbye() const { return received_goodbye_; }
  bool received_frame() const { return received_frame_; }

  int fd() const override { return socket_.get(); }
  void ready(std::uint32_t events) override;
  void flush() override;
  void forget() override { socket_.reset(); }
  void broke(int os_code) override { ended(os_code); }
  /// Bytes of memory that the connection holds for frames.
  size_t buffer_bytes() const { return in_.capacity() + out_.capacity(); }
  /// Bytes that wait for the other end to read. More of them end the connection with ENOBUFS, so
  /// a peer that never reads uses up no memory. One frame may be larger.
  static constexpr size_t max_unsent_bytes = size_t{1} << 28;

 private:
  void append(FrameKind kind, int rank, std::uint64_t tag, Bytes payload);
  void read_some();
  void receive();
  void take(const FrameHeader& header, Bytes payload);
  void ended(int os_code);

  SecureSocket socket_;
  OnFrame on_frame_;
  OnClosed on_closed_;
  std::vector<std::byte> in_;
  std::vector<std::byte> out_;
  size_t sent_ = 0;              // bytes of out_
  size_t unanswered_bytes_ = 0;  // bytes of statuses since the last frame from the other end
  std::map<int, std::pair<std::uint64_t, std::vector<std::byte>>>
      held_statuses_;  // statuses, by rank
  bool writable_wanted_ = false;
  bool flush_asked_ = false;
  bool broken_ = false;  // sending fails
  bool unread_ = false;  // the other end does not read: it ends in the engine's thread
  bool draining_ = false;
  bool shut_ = false;
  bool received_goodbye_ = false;  // the other end has sent a goodbye
  bool received_frame_ = false;    // the other end has sent a frame
  std::string fault_;
};

}  // namespace ccl::detail::net
