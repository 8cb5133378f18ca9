#pragma once

#include <ccl/detail/runtime/proxy_engine.hpp>
#include <ccl/detail/transport/zero_copy.hpp>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <memory>
#include <utility>

#include "proxy/transfer_notes.hpp"
#include "transport/socket/stream.hpp"

namespace ccl::detail {

constexpr Index stream_turn_bytes = 1 << 20;  // of one stream in a turn

/// Prepares a socket for steps: a late rank may leave data unread for any time, so only keep-alives
/// detect a dead host.
void tune_for_steps(int socket);

inline bool would_block(int os_code) {
  return os_code == EAGAIN || os_code == EWOULDBLOCK || os_code == EINTR;
}

/// Common part of both ends of a stream.
class SocketTask : public ProxyTask {
 public:
  SocketTask(std::shared_ptr<SocketLink> link, int channel, int stream)
      : link_{std::move(link)},
        wire_{link_->wires[std::size_t(channel)]},
        channel_{channel},
        stream_{stream} {}
  bool ending() const override { return link_->closing.load(std::memory_order_acquire); }
  int watched() const override { return socket_ ? socket_.get() : -1; }

 protected:
  void used_up(bool ProxyReadiness::*what) { readiness.*what = readiness.closed; }
  Word& size_of(Word step) const { return wire_.sizes[step & Word(wire_.slot_count - 1)]; }
  Word bytes_of(Word step) const { return size_of(step) & ~ZeroCopy::mark; }
  /// True if the step is in, or goes to, the user's memory.
  bool past_slot(Word step) const {
    return wire_.zero_copy != nullptr && size_of(step) >= ZeroCopy::mark;
  }
  bool revoked() const { return wire_.zero_copy != nullptr && wire_.zero_copy->revoked(); }
  Index slot_bytes() const { return Index(wire_.slot_packets) * Index(sizeof(Packet)); }
  std::byte* slot(Word step) const {
    return past_slot(step) ? wire_.zero_copy->place(step)
                           : reinterpret_cast<std::byte*>(wire_.slot(step));
  }
  Piece piece(Word step) const { return Piece::of(Index(bytes_of(step)), stream_, link_->streams); }
  std::size_t line() const { return std::size_t(channel_ * link_->streams + stream_); }
  std::atomic<Word>& announced() const { return link_->announced[std::size_t(channel_)]; }
  /// The first stream wakes the others.
  bool polled() const { return link_->polled && stream_ == 0 && !ending(); }
  /// Wakes the other streams of the channel, which may have work now.
  void wake_others() const {
    if (link_->streams == 1) return;
    const ProxyEngine* const own = &link_->engine_of(channel_, stream_);
    for (ProxyEngine* const engine : link_->engines) {
      if (engine != own) engine->wake();
    }
  }
  /// Prepares a socket that has arrived.
  template <class Notes>
  void tune(Notes& notes) const {
    tune_for_steps(socket_.get());
    if constexpr (Notes::wanted) notes.use_networks({link_->interface_of(socket_.get())});
  }
  void lose(const char* what, int os_code) {
    socket_.reset();
    link_->lose(what, os_code);
  }

  const std::shared_ptr<SocketLink> link_;
  const Wire wire_;
  const int channel_, stream_;
  net::SecureSocket socket_;
};

}  // namespace ccl::detail
