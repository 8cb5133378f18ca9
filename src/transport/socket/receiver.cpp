#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <utility>

#include "transport/edge_error.hpp"
#include "transport/socket/task.hpp"
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

namespace ccl::detail {
namespace {

constexpr std::size_t staging_bytes = 16 << 10;
constexpr unsigned receives_per_hush = 64;
constexpr int max_deferred = 16;  // turns: some microseconds
constexpr Index min_lot = 4096;   // bytes of a message that does not arrive alone

/// Delays acknowledgments until a second segment, as long as the kernel permits. Otherwise an
/// empty packet answers each small message, at a fourth of the message's own cost.
void hush(int socket) {
  const int off = 0;
  ::setsockopt(socket, IPPROTO_TCP, TCP_QUICKACK, &off, sizeof off);
}

/// `Notes`: times of the steps.
template <class Notes>
class ReceiveStream final : public SocketTask {
 public:
  ReceiveStream(std::shared_ptr<SocketLink> link, int channel, int stream)
      : SocketTask{std::move(link), channel, stream},
        notes_{link_->transfers(), link_->edge, wire_, channel, stream} {
    // Pages that no step needs stay untouched.
    if (stream == 0) staging_ = std::make_unique_for_overwrite<std::byte[]>(staging_bytes);
  }

  Progress progress(ProxyCounters& counters) override {
    if (ending()) return leave();
    if (revoked()) return Progress::none;
    if (!socket_ && !arrive()) return Progress::none;
    Progress progress = Progress::none;
    Index left_bytes = stream_turn_bytes;
    large_done_ = false;
    while (left_bytes > 0 && socket_) {
      while (!large_done_ && unpack(counters)) progress = Progress::some;
      if (!socket_ || large_done_ || !wants_bytes() || !has_bytes()) break;
      if (defers()) break;
      bool more = false;
      const Index got = receive_some(more);
      if (got <= 0) break;
      counters.bytes += Word(got);
      left_bytes -= got;
      progress = Progress::some;
      if (!more) {  // the socket is empty
        while (!large_done_ && unpack(counters)) {
        }
        break;
      }
    }
    return progress;
  }

  ProxyInterest interest() const override {
    if (revoked()) return {-1, 0, ending(), false};
    if (!socket_) {
      ProxyInterest interest{-1, 0, ending() || waiting(), false};
      if (!arrived_ && !failed_) interest.deadline = link_->look_for_sender();
      return interest;
    }
    const bool can_move = can_unpack() || (wants_bytes() && socket_.buffered());
    return {socket_.get(), short(wants_bytes() ? POLLIN | POLLRDHUP : 0), ending() || can_move,
            polled() && wants_credit(), holds_large() && !ending()};
  }

 private:
  bool waiting() const { return !arrived_ && link_->arriving.contains(line()); }
  bool arrive() {
    if (arrived_ || failed_) return false;
    socket_ = link_->arriving.take(line());
    if (socket_) tune(notes_);
    arrived_ = bool(socket_);
    if (!arrived_ && link_->sender_is_late()) {
      failed_ = true;
      link_->fail_with(
          Errc::timed_out,
          fmt::format("rank {} on {} has not connected (its process is stopped or it "
                      "cannot reach this host); start all ranks, or raise CCL_INIT_TIMEOUT",
                      link_->edge.peer.rank, link_->edge.peer.host));
    }
    return arrived_;
  }

  bool has_credit() const {
    return step_ < HostMemory::load_credit(wire_.drained) + Word(wire_.slot_count);
  }
  std::size_t staged() const { return end_ - begin_; }
  /// True while a step is being received: its header has arrived.
  bool inside() const { return inside_; }
  bool can_unpack() const {
    if (stream_ == 0) {
      if (inside_) return rest_ == 0 || staged() > 0;
      return staged() >= sizeof(StepHeader) && has_credit();
    }
    return inside_ ? rest_ == 0 : step_ < announced().load(std::memory_order_acquire);
  }
  /// True if a large step is next, whose destination lanes may still offer.
  bool holds_large() const {
    if (wire_.zero_copy == nullptr || inside_ || staged() < sizeof(StepHeader)) return false;
    StepHeader header;
    std::memcpy(&header, staging_.get() + begin_, sizeof header);
    return Index(header.bytes) >= ZeroCopy::min_bytes;
  }
  /// True while it waits for credit of the lanes, which arrives without a call.
  bool wants_credit() const { return !inside_ && staged() >= sizeof(StepHeader) && !has_credit(); }
  /// True unless the socket is known to be empty.
  bool has_bytes() const { return !readiness.reported || readiness.readable || socket_.buffered(); }
  bool wants_bytes() const {
    if (inside_) return rest_ > 0;
    return stream_ == 0 && staged() < sizeof(StepHeader);
  }

  // If the receiver reads a second small message before it has sent one back, the kernel
  // acknowledges both with a packet of its own. A peer that is ahead by one call has sent such a
  // message; this rank's message of the next call acknowledges it.

  /// True if the lanes report what they wait for and send on the same connection.
  bool converses() const {
    return link_->both_ways && wire_.zero_copy != nullptr && wire_.zero_copy->wanted() > 0 &&
           !inside_ && !after_large_;
  }
  /// Defers reading for a few turns: leaves data in the socket that the lanes do not want yet.
  bool defers() {
    if (!converses() || step_ < wire_.zero_copy->wanted() || staged() > 1) return false;
    if (deferred_ == max_deferred) return false;
    ++deferred_;
    return true;
  }
  /// Free bytes of the staging area, if a header is next. One byte more than needed shows that the
  /// socket holds more.
  std::size_t room() {
    if (after_large_) return sizeof(StepHeader);
    if (!converses() || step_ + 1 != wire_.zero_copy->wanted() || !sends()) return staging_bytes;
    const Index bytes = wire_.zero_copy->wanted_bytes();
    const bool fits = bytes >= 0 && bytes < min_lot;
    return fits ? sizeof(StepHeader) + std::size_t(bytes) + 1 : staging_bytes;
  }
  /// True if steps have been posted for the peer since the last read. If not, it reads all data.
  bool sends() {
    if (mate_ == nullptr) mate_ = link_->mate();
    return posted_for_peer() != posted_;
  }
  Word posted_for_peer() const {
    if (mate_ == nullptr) return 0;
    return HostMemory::load_acquire(mate_->wires[std::size_t(channel_)].posted);
  }

  /// Processes the staged data. Returns true if anything moved.
  bool unpack(ProxyCounters& counters) {
    if (!can_unpack()) return false;
    if (!inside_) {
      if (stream_ == 0 && !open_step()) return false;
      const Piece mine = piece(step_);
      at_ = slot(step_) + mine.offset;
      rest_ = mine.bytes;
      inside_ = true;
      notes_.begin(step_, notes_.now());
    }
    if (const Index ready = std::min(Index(staged()), rest_); ready > 0) {
      const ZeroCopy::Use use{past_slot(step_) ? wire_.zero_copy : nullptr};
      if (!use.allowed()) return false;
      std::memcpy(at_, staging_.get() + begin_, std::size_t(ready));
      begin_ += std::size_t(ready);
      at_ += ready;
      rest_ -= ready;
    }
    if (rest_ == 0) {
      inside_ = false;
      large_done_ = wire_.zero_copy != nullptr && Index(bytes_of(step_)) >= ZeroCopy::min_bytes;
      after_large_ = large_done_;
      if (Notes::wanted && (stream_ == 0 || piece(step_).bytes > 0)) {
        notes_.end(step_, Word(piece(step_).bytes), notes_.now());
      }
      ++step_;
      if (stream_ == 0) ++counters.steps;
      link_->publish(channel_, stream_, step_);
    }
    return true;
  }

  /// Takes the next header. Returns false if no further step will follow.
  bool open_step() {
    StepHeader header;
    std::memcpy(&header, staging_.get() + begin_, sizeof header);
    begin_ += sizeof header;
    if (header.step == goodbye) {
      socket_.reset();
      if (link_->both_ways) {
        if (const auto out = link_->mate()) out->peer_left.store(true, std::memory_order_release);
      }
      return false;
    }
    if (header.step == rests && link_->sender_opens_late && link_->streams == 1 && staged() == 0) {
      (void)socket_.send({&rests_too, 1});
      (void)socket_.flush();
      socket_.reset();
      readiness = {};
      arrived_ = false;
      return false;
    }
    if (header.step != step_ || header.bytes > Word(slot_bytes())) {
      socket_.reset();
      link_->fail_with(
          Errc::mismatch,
          broken_protocol(link_->edge, fmt::format("step is {} of {} bytes, not {} of at most {}",
                                                   header.step, header.bytes, step_, slot_bytes())),
          EPROTO);
      return false;
    }
    const bool past = wire_.zero_copy != nullptr && Index(header.bytes) >= ZeroCopy::min_bytes &&
                      wire_.zero_copy->offered(step_, Index(header.bytes));
    size_of(step_) = header.bytes | (past ? ZeroCopy::mark : 0);
    announced().store(step_ + 1, std::memory_order_release);
    wake_others();
    return true;
  }

  /// Receives the rest of the step straight into its slot, and further data into the staging area.
  /// `more`: the socket gave all bytes asked for.
  Index receive_some(bool& more) {
    if (begin_ == end_) begin_ = end_ = 0;
    if (begin_ > 0) {  // a part of a header
      std::memmove(staging_.get(), staging_.get() + begin_, staged());
      end_ -= std::exchange(begin_, 0);
    }
    iovec parts[2];
    std::size_t count = 0;
    const Index direct = std::min(rest_, stream_turn_bytes);
    if (inside_ && rest_ > 0) parts[count++] = {at_, std::size_t(direct)};
    if (stream_ == 0 && direct == (inside_ ? rest_ : 0)) {
      // A large step usually follows another: it bypasses the staging area.
      const bool large = inside_ && wire_.zero_copy != nullptr && direct >= ZeroCopy::min_bytes;
      const std::size_t most = large ? sizeof(StepHeader) : inside_ ? staging_bytes : room();
      parts[count++] = {staging_.get() + end_, most - end_};
    }
    ssize_t got = 0;
    const ZeroCopy::Use use{inside_ && past_slot(step_) ? wire_.zero_copy : nullptr};
    if (!use.allowed()) return -1;
    got = socket_.recv({parts, count});
    if (got > 0) {
      deferred_ = 0;
      posted_ = posted_for_peer();
      if (receives_++ % receives_per_hush == 0) hush(socket_.get());
      const Index into_slot = inside_ ? std::min(Index(got), direct) : 0;
      at_ += into_slot;
      rest_ -= into_slot;
      end_ += std::size_t(got - into_slot);
      more = !socket_.drained();
      if (!more) used_up(&ProxyReadiness::readable);
    } else if (got == 0) {
      if (stream_ == 0) {
        lose("its process ended or closed the connection", 0);
      } else {
        socket_.reset();  // the first stream reports the reason
      }
    } else if (!would_block(errno)) {
      lose("the connection broke", errno);
    } else if (errno != EINTR) {
      used_up(&ProxyReadiness::readable);
    }
    return Index(got);
  }

  Progress leave() {
    if (!socket_) socket_ = link_->arriving.take(line());
    // The reverse edge closes a shared socket.
    if (socket_ && link_->healthy() && !link_->both_ways) {
      (void)socket_.send({&closes, 1});
    }
    return Progress::ended;
  }

  bool arrived_ = false, failed_ = false;
  Word step_ = 0;        // being received
  bool inside_ = false;  // its header has come
  std::byte* at_ = nullptr;
  Index rest_ = 0;  // missing bytes of its piece, for `at_`
  std::unique_ptr<std::byte[]> staging_;
  unsigned receives_ = 0;
  int deferred_ = 0;                  // turns since it last read
  std::shared_ptr<SocketLink> mate_;  // the reverse edge
  Word posted_ = 0;                   // steps for it, at the last read
  bool large_done_ = false;           // in this turn: lanes may now offer for the next
  bool after_large_ = false;          // the last step was large
  std::size_t begin_ = 0, end_ = 0;   // range of early data in `staging_`
  [[no_unique_address]] Notes notes_;
};

}  // namespace

std::shared_ptr<ProxyTask> make_receive_stream(std::shared_ptr<SocketLink> link, int channel,
                                               int stream) {
  if (link->transfers() != nullptr) {
    return std::make_shared<ReceiveStream<TransferNotes>>(std::move(link), channel, stream);
  }
  return std::make_shared<ReceiveStream<NoTransferNotes>>(std::move(link), channel, stream);
}

}  // namespace ccl::detail
