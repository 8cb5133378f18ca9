#pragma once

#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "net/engine.hpp"
#include "net/sha256.hpp"
#include "net/socket.hpp"

namespace ccl::detail::net {

/// What a frame is.
enum class FrameKind : std::uint32_t {
  message = 1,  // rank to rank, with a tag
  part,         // of an all-gather: `rank` owns it, `tag` is the number of the call
  token,        // of a barrier: `rank` is the round, `tag` the number of the call
  next,         // root to rank: who comes next in the ring
  progress,     // root to rank: how many have joined
  formed,       // rank to root: my part of the ring stands
  release,      // root to rank: the whole ring stands
  notice,       // a rank is lost or has aborted
  goodbye,      // I leave, all is well
  rank_status,      // what `rank` says of itself; `tag` is the number of its accounts so far
  heard         // an account has come; between the two ends of a connection
};

struct FrameHeader {
  FrameKind kind = FrameKind::message;
  std::int32_t rank = -1;
  std::uint64_t tag = 0;
  std::uint64_t bytes = 0;  // that follow
};

/// An authenticated connection that carries frames, read by the engine's thread. All calls are made
/// with the engine's mutex held.
class Conn : public Handler, public std::enable_shared_from_this<Conn> {
 public:
  using OnFrame = std::function<void(Conn&, const FrameHeader&, Bytes)>;
  using OnClosed = std::function<void(Conn&, int os_code)>;
  /// `closed` is called once, when the other end is gone; not after `close` or `drain`.
  static Result<std::shared_ptr<Conn>> start(Fd fd, OnFrame frame, OnClosed closed);
  Conn(Fd fd, OnFrame frame, OnClosed closed);

  void send(FrameKind kind, int rank, std::uint64_t tag, Bytes payload);
  /// As above, and writes before it returns what the socket takes.
  void send_now(FrameKind kind, int rank, std::uint64_t tag, Bytes payload);
  /// An account: at once to an end that hears them. One that is stopped gets no more than a few, as
  /// its system ends a connection that is full for some seconds, and the rank would be lost. Of
  /// each rank the latest is kept until it hears again.
  void tell(int rank, std::uint64_t tag, Bytes rank_status);
  void close();
  /// Sends what is left, then reads until the other end closes, at most two seconds: closing with
  /// unread input would destroy output on its way.
  void drain();
  bool is_open() const { return bool(fd_) && !draining_; }
  bool said_goodbye() const { return said_goodbye_; }
  bool said_anything() const { return said_anything_; }

  int fd() const override { return fd_.get(); }
  void ready(std::uint32_t events) override;
  void flush() override;
  void forget() override { fd_.reset(); }

 private:
  void append(FrameKind kind, int rank, std::uint64_t tag, Bytes payload);
  void read_some();
  void take(const FrameHeader& header, Bytes payload);
  void ended(int os_code);

  Fd fd_;
  OnFrame on_frame_;
  OnClosed on_closed_;
  std::vector<std::byte> in_;
  std::vector<std::byte> out_;
  size_t sent_ = 0;     // bytes of out_
  size_t unheard_ = 0;  // bytes of accounts since the other end last said anything
  std::map<int, std::pair<std::uint64_t, std::vector<std::byte>>> untold_;  // accounts, by rank
  bool writable_wanted_ = false;
  bool flush_asked_ = false;
  bool broken_ = false;  // nothing can be sent any more
  bool draining_ = false;
  bool shut_ = false;
  bool said_goodbye_ = false;   // the other end did
  bool said_anything_ = false;  // and this
};

}  // namespace ccl::detail::net
