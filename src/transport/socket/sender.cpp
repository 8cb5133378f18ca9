#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <span>
#include <utility>

#include "transport/socket/task.hpp"
#include <linux/sockios.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>

namespace ccl::detail {
namespace {

constexpr int steps_per_send = 8;           // small steps that share a system call
constexpr int rounds_per_look = 16;         // an idle sender checks for a close
constexpr std::size_t packed_bytes = 2048;  // parts that cost less to copy than to list

/// `Notes`: times of the steps.
template <class Notes>
class SendStream final : public SocketTask {
 public:
  SendStream(std::shared_ptr<SocketLink> link, int channel, int stream, net::SecureSocket socket)
      : SocketTask{std::move(link), channel, stream},
        notes_{link_->transfers(), link_->edge, wire_, channel, stream} {
    socket_ = std::move(socket);
    if (socket_) tune(notes_);
    arrived_ = bool(socket_);
    goes_first = true;
  }

  Progress progress(ProxyCounters& counters) override {
    const bool closing = ending();  // before the check of `posted`: no more steps are posted
    const Word posted = HostMemory::load_acquire(wire_.posted);
    notes_.posted(posted);
    if (!arrived_ && !(link_->late_calls ? open(posted) : arrive())) {
      return closing && gone(posted) ? Progress::ended : Progress::none;
    }
    if (!socket_ || left_) {
      if (!closing && posted > step_ && left_) lose("it closed its end of the connection", 0);
      if (!closing) return Progress::none;
      return socket_ && step_ == posted ? leave() : Progress::ended;
    }
    if (closing && !link_->healthy()) return Progress::ended;
    if (resting_) return rest(closing && step_ == posted);
    if (step_ == posted) {
      if (closing) return leave();
      if (socket_.unsent()) return send_rest();
      if (readiness.reported ? readiness.readable : ++quiet_ % rounds_per_look == 0)
        look_for_close_notify();
      if (!socket_ || left_ || !is_idle()) return Progress::none;
      resting_ = true;
      return rest(false);  // tells the receiver at once: from here on, only its answer wakes this
    }
    busy_ = true;
    if (revoked()) return Progress::none;
    Progress progress = Progress::none;
    Index left_bytes = stream_turn_bytes;
    blocked_ = readiness.reported && !readiness.writable;
    while (step_ < posted && left_bytes > 0 && !blocked_) {
      const Word before = step_;
      const Index sent = send_some(posted);
      if (sent < 0) return progress;
      left_bytes -= sent;
      counters.bytes += Word(sent);
      if (step_ != before) {
        if (stream_ == 0) counters.steps += step_ - before;
        link_->publish(channel_, stream_, step_);
      }
      progress = Progress::some;
    }
    return progress;
  }

  ProxyInterest interest() const override {
    if (!arrived_) return {-1, 0, has_come(), polled()};
    if (!socket_ || revoked()) return {-1, 0, ending(), polled()};
    const Word posted = HostMemory::load_acquire(wire_.posted);
    if (resting_) {
      const short events = POLLIN | POLLRDHUP | (blocked_ ? POLLOUT : 0);
      return {socket_.get(), events, ending() && step_ == posted && !blocked_, false};
    }
    const bool more = step_ < posted || ending() || socket_.unsent();
    const bool gathers = sent_ == 0 && !socket_.unsent() && !ending() && more &&
                         Index(bytes_of(posted - 1)) < ZeroCopy::min_bytes;
    // The reverse edge waits for data on a shared socket.
    const int in = link_->both_ways ? 0 : POLLIN | POLLRDHUP;
    return {socket_.get(), short((blocked_ ? POLLOUT : 0) | in), more && !blocked_, polled(), false,
            gathers};
  }

  /// In bytes. The receiver's kernel has acknowledged what the socket does not queue.
  Word undelivered() const override {
    if ((arrived_ && (!socket_ || left_)) || failed_ || revoked()) return 0;
    int queued = 0;
    if (socket_ && ::ioctl(socket_.get(), SIOCOUTQ, &queued) != 0) queued = 0;
    const Word steps = HostMemory::load_acquire(wire_.posted) - step_;
    const bool leaves = arrived_ && ending();
    return steps * Word(slot_bytes() + Index(sizeof(StepHeader))) - Word(sent_) + Word(queued) +
           (socket_.unsent() || leaves ? 1 : 0);
  }

 private:
  /// Takes a socket that the peer makes, for both directions.
  bool arrive() {
    socket_ = link_->arriving.take(line());
    arrived_ = bool(socket_);
    if (arrived_) tune(notes_);
    return arrived_;
  }
  /// Opens the connection when a step needs it.
  bool open(Word posted) {
    if (posted == step_ || failed_) return false;
    auto opened = link_->late_calls->open(line());
    if (!opened) {
      failed_ = true;
      link_->fail_to_open(std::move(opened).error());
      return false;
    }
    socket_ = *std::move(opened);
    arrived_ = bool(socket_);
    if (arrived_) tune(notes_);
    return arrived_;
  }
  bool has_come() const {
    return link_->late_calls ? link_->late_calls->contains(line())
                             : link_->arriving.contains(line());
  }
  /// True if no socket will arrive: none is needed, or the listener is closed.
  bool gone(Word posted) const {
    if (link_->late_calls) return posted == step_ || failed_ || !link_->healthy();
    const auto in = link_->mate();
    return (in == nullptr || in->closing.load()) && !link_->arriving.contains(line());
  }

  /// Sends as much as one system call does. Returns -1 if the socket takes nothing now, or no more.
  Index send_some(Word posted) {
    iovec parts[2 * steps_per_send];
    StepHeader headers[steps_per_send];
    int count = 0;
    bool lent = false;
    Word last = step_;
    for (; last < posted && last < step_ + steps_per_send; ++last) {
      const Piece mine = piece(last);
      StepHeader& header = headers[last - step_];
      header = {last, bytes_of(last)};
      lent = lent || past_slot(last);
      Index skip = last == step_ ? sent_ : 0;
      if (stream_ == 0) {
        const Index rest = std::max(Index(sizeof header) - skip, Index(0));
        if (rest > 0) {
          parts[count++] = {reinterpret_cast<std::byte*>(&header) + skip, std::size_t(rest)};
        }
        skip = std::max(skip - Index(sizeof header), Index(0));
      }
      if (mine.bytes > skip) {
        parts[count++] = {slot(last) + mine.offset + skip, std::size_t(mine.bytes - skip)};
      }
      if (mine.bytes > (16 << 10)) {  // the rest waits: first sent, first free
        ++last;
        break;
      }
    }
    const Word begun = notes_.now();
    Index sent = 0;
    if (count > 0) {
      const ZeroCopy::Use use{lent ? wire_.zero_copy : nullptr};
      if (!use.allowed()) return -1;
      sent = send_parts({parts, std::size_t(count)});
      if (sent < 0) {
        const int os_code = errno;
        blocked_ = would_block(os_code);
        if (os_code == EAGAIN) used_up(&ProxyReadiness::writable);
        if (!blocked_ && !look_for_close_notify()) {
          if (socket_) lose("the connection broke", os_code);
        }
        return -1;
      }
    }
    if (stream_ == 0 && last > reported_) {  // pieces for the others
      reported_ = last;
      wake_others();
    }
    sent_ += sent;
    for (; step_ < last; ++step_) {
      const Index whole = piece(step_).bytes + (stream_ == 0 ? Index(sizeof(StepHeader)) : 0);
      if (sent_ < whole) break;
      sent_ -= whole;
      if (Notes::wanted && whole > 0) notes_.end(step_, Word(piece(step_).bytes), begun);
    }
    if (Notes::wanted && sent_ > 0) notes_.begin(step_, begun, Word(piece(step_).bytes));
    return sent;
  }

  Index send_parts(std::span<iovec> parts) {
    std::size_t bytes = 0;
    for (const iovec& part : parts) bytes += part.iov_len;
    if (bytes > packed_bytes) return socket_.send(parts);
    std::byte packed[packed_bytes];
    std::byte* end = packed;
    for (const iovec& part : parts) {
      std::memcpy(end, part.iov_base, part.iov_len);
      end += part.iov_len;
    }
    return socket_.send({packed, bytes});
  }

  /// Sends what a protected socket has kept of the last steps.
  Progress send_rest() {
    if (readiness.reported && !readiness.writable) return Progress::none;
    blocked_ = !socket_.flush();
    if (!blocked_) return Progress::some;
    const int os_code = errno;
    if (os_code == EAGAIN) used_up(&ProxyReadiness::writable);
    if (!would_block(os_code)) lose("the connection broke", os_code);
    return Progress::none;
  }

  /// Checks for the byte that the receiver sends before it closes without an error. True if it has.
  bool look_for_close_notify() {
    if (link_->both_ways) {
      // The peer's end of the reverse edge may still use the socket, which must stay open.
      left_ = link_->peer_left.load(std::memory_order_acquire);
      return left_;
    }
    std::byte byte{0};
    used_up(&ProxyReadiness::readable);
    const ssize_t bytes = socket_.recv({&byte, 1});
    if (bytes > 0) {
      left_ = true;
      socket_.reset();
      return true;
    }
    if (bytes == 0) {
      lose("its process ended or closed the connection", 0);
    } else if (!would_block(errno)) {
      lose("the connection broke", errno);
    }
    return false;
  }

  /// True if no step has come for a while, so that the connection may close. A channel with several
  /// streams keeps its connections.
  bool is_idle() {
    if (link_->idle_s == 0 || link_->streams > 1) return false;
    const auto now = std::chrono::steady_clock::now();
    if (std::exchange(busy_, false)) since_ = now;
    return now - since_ > std::chrono::duration<double>(link_->idle_s);
  }

  /// Tells the receiver that no step follows for a while, and closes when it has answered: it has
  /// then received all steps. What lanes post meanwhile goes over the next connection.
  Progress rest(bool ends) {
    if (!link_->healthy()) return ends ? Progress::ended : Progress::none;
    if (!send_last(rests)) return blocked();
    blocked_ = false;
    if (ends) return Progress::ended;
    std::byte answer{0};
    used_up(&ProxyReadiness::readable);
    const ssize_t bytes = socket_.recv({&answer, 1});
    if (bytes < 0 && would_block(errno)) return Progress::none;
    if (bytes <= 0) {
      lose(bytes == 0 ? "its process ended or closed the connection" : "the connection broke",
           bytes == 0 ? 0 : errno);
      return Progress::none;
    }
    left_ = answer != rests_too;
    socket_.reset();
    readiness = {};
    last_bytes_ = 0;
    resting_ = false;
    arrived_ = left_;
    return Progress::some;
  }

  /// Sends a header without a step as the last bytes. False if the socket takes no more now.
  bool send_last(Word step) {
    const StepHeader header{step, 0};
    const net::Bytes bytes = std::as_bytes(std::span{&header, 1});
    while (last_bytes_ < bytes.size()) {
      const ssize_t sent = socket_.send(bytes.subspan(last_bytes_));
      if (sent < 0 && would_block(errno)) return false;
      if (sent <= 0) break;
      last_bytes_ += std::size_t(sent);
    }
    return socket_.flush() || !would_block(errno);
  }

  Progress leave() {
    if (stream_ == 0 && link_->healthy() && !send_last(goodbye)) return blocked();
    if (link_->healthy() && !socket_.flush() && would_block(errno)) return blocked();
    return Progress::ended;
  }

  Progress blocked() {
    blocked_ = true;
    return Progress::none;
  }

  Word step_ = 0;  // being sent
  Word reported_ = 0;
  Index sent_ = 0;  // bytes of it sent on this stream, with the header
  unsigned quiet_ = 0;
  bool blocked_ = false;        // the socket takes nothing until it is writable
  bool left_ = false;           // the receiver has closed without an error
  bool arrived_ = false;        // has had a socket
  bool failed_ = false;         // to open one
  std::size_t last_bytes_ = 0;  // sent of a header without a step
  bool resting_ = false;        // disconnects until there is a step
  bool busy_ = true;            // has had a step since the last look for idleness
  std::chrono::steady_clock::time_point since_{};  // no step has come
  [[no_unique_address]] Notes notes_;
};

}  // namespace

std::shared_ptr<ProxyTask> make_send_stream(std::shared_ptr<SocketLink> link, int channel,
                                            int stream, net::SecureSocket socket) {
  if (link->transfers() != nullptr) {
    return std::make_shared<SendStream<TransferNotes>>(std::move(link), channel, stream,
                                                       std::move(socket));
  }
  return std::make_shared<SendStream<NoTransferNotes>>(std::move(link), channel, stream,
                                                       std::move(socket));
}

}  // namespace ccl::detail
