#include "transport/socket_stream.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

namespace ccl::detail {
namespace {

constexpr Index turn_bytes = 1 << 20;  // of one stream, then the others have their turn
constexpr int steps_per_send = 8;      // small steps that share a system call
constexpr int rounds_per_look = 16;    // a sender with nothing to send looks for a farewell
constexpr std::size_t staging_bytes = 16 << 10;
constexpr std::size_t packed_bytes = 2048;  // parts that cost less to copy than to list
constexpr unsigned receives_per_hush = 64;

/// Until the kernel thinks better of it, acknowledgements wait for a second segment. Otherwise each
/// small message is answered at once by an empty packet, at a fourth of the message's own cost.
void hush(int socket) {
  const int off = 0;
  ::setsockopt(socket, IPPROTO_TCP, TCP_QUICKACK, &off, sizeof off);
}

/// Ready for steps: a rank that is late may leave data unread for as long as it likes, so only
/// keep-alives tell a dead host, never unread data.
void tune(int socket) {
  const int on = 1, never = 0;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ::setsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &never, sizeof never);
}

bool would_block(int os_code) {
  return os_code == EAGAIN || os_code == EWOULDBLOCK || os_code == EINTR;
}

class Stream : public ProxyTask {
 public:
  Stream(std::shared_ptr<SocketLink> link, int channel, int stream)
      : link_{std::move(link)},
        wire_{link_->wires[std::size_t(channel)]},
        channel_{channel},
        stream_{stream} {}
  bool ending() const override { return link_->closing.load(std::memory_order_acquire); }
  int watched() const override { return socket_ ? socket_.get() : -1; }

 protected:
  void used_up(bool ProxyHeard::*what) { heard.*what = heard.closed; }
  Word& size_of(Word step) const { return wire_.sizes[step & Word(wire_.slot_count - 1)]; }
  Word bytes_of(Word step) const { return size_of(step) & ~Bypass::mark; }
  /// Whether the step is, or goes to, the user's memory.
  bool past_slot(Word step) const {
    return wire_.bypass != nullptr && size_of(step) >= Bypass::mark;
  }
  bool revoked() const { return wire_.bypass != nullptr && wire_.bypass->revoked(); }
  Index slot_bytes() const { return Index(wire_.slot_packets) * Index(sizeof(Packet)); }
  std::byte* slot(Word step) const {
    return past_slot(step) ? wire_.bypass->place(step)
                           : reinterpret_cast<std::byte*>(wire_.slot(step));
  }
  Piece piece(Word step) const { return Piece::of(Index(bytes_of(step)), stream_, link_->streams); }
  std::size_t line() const { return std::size_t(channel_ * link_->streams + stream_); }
  std::atomic<Word>& announced() const { return link_->announced[std::size_t(channel_)]; }
  /// The first stream tells the others.
  bool polled() const { return link_->polled && stream_ == 0 && !ending(); }
  /// The other streams of the channel may have something to do now.
  void wake_others() const {
    for (std::size_t n = 1; n < link_->engines.size(); ++n) link_->engines[n]->wake();
  }
  void lose(const char* what, int os_code) {
    socket_.reset();
    link_->lose(what, os_code);
  }

  const std::shared_ptr<SocketLink> link_;
  const Wire wire_;
  const int channel_, stream_;
  Fd socket_;
};

class SendStream final : public Stream {
 public:
  SendStream(std::shared_ptr<SocketLink> link, int channel, int stream, Fd socket)
      : Stream{std::move(link), channel, stream} {
    socket_ = std::move(socket);
    if (socket_) tune(socket_.get());
    arrived_ = bool(socket_);
  }

  Progress progress(ProxyCounters& counters) override {
    const bool closing = ending();  // before the look at `posted`: nobody posts any more
    const Word posted = HostMemory::load_acquire(wire_.posted);
    if (!arrived_ && !arrive()) return closing && gone() ? Progress::ended : Progress::none;
    if (!socket_ || left_) {
      if (!closing && posted > step_ && left_) lose("it closed its end of the connection", 0);
      if (!closing) return Progress::none;
      return socket_ && step_ == posted ? leave() : Progress::ended;
    }
    if (step_ == posted) {
      if (closing) return leave();
      if (heard.told ? heard.readable : ++quiet_ % rounds_per_look == 0) look_for_farewell();
      return Progress::none;
    }
    if (closing && !link_->healthy()) return Progress::ended;
    if (revoked()) return Progress::none;
    Progress progress = Progress::none;
    Index left_bytes = turn_bytes;
    blocked_ = heard.told && !heard.writable;
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
    if (!arrived_) return {-1, 0, link_->arriving.has(line()), polled()};
    if (!socket_ || revoked()) return {-1, 0, ending(), polled()};
    const bool more = step_ < HostMemory::load_acquire(wire_.posted) || ending();
    // Of a socket in common the edge in waits for data.
    const int in = link_->both_ways ? 0 : POLLIN | POLLRDHUP;
    return {socket_.get(), short((blocked_ ? POLLOUT : 0) | in), more && !blocked_, polled()};
  }

 private:
  /// A line that the peer makes, for both directions.
  bool arrive() {
    socket_ = link_->arriving.take(line());
    arrived_ = bool(socket_);
    if (arrived_) tune(socket_.get());
    return arrived_;
  }
  /// No line will come any more: nobody listens.
  bool gone() const {
    const auto in = link_->mate();
    return (in == nullptr || in->closing.load()) && !link_->arriving.has(line());
  }

  /// One system call's worth; -1 if the socket takes nothing now, or no more.
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
      if (mine.bytes > (16 << 10)) {  // the rest waits: what is sent first is free first
        ++last;
        break;
      }
    }
    Index sent = 0;
    if (count > 0) {
      const Bypass::Use use{lent ? wire_.bypass : nullptr};
      if (!use.allowed()) return -1;
      sent = send_parts({parts, std::size_t(count)});
      if (sent < 0) {
        const int os_code = errno;
        blocked_ = would_block(os_code);
        if (os_code == EAGAIN) used_up(&ProxyHeard::writable);
        if (!blocked_ && !look_for_farewell()) {
          if (socket_) lose("the connection broke", os_code);
        }
        return -1;
      }
    }
    if (stream_ == 0 && step_ >= told_) {  // pieces for the others
      told_ = last;
      wake_others();
    }
    sent_ += sent;
    for (; step_ < last; ++step_) {
      const Index whole = piece(step_).bytes + (stream_ == 0 ? Index(sizeof(StepHeader)) : 0);
      if (sent_ < whole) break;
      sent_ -= whole;
    }
    return sent;
  }

  Index send_parts(std::span<iovec> parts) {
    std::size_t bytes = 0;
    for (const iovec& part : parts) bytes += part.iov_len;
    if (bytes > packed_bytes) {
      msghdr message{};
      message.msg_iov = parts.data();
      message.msg_iovlen = parts.size();
      return ::sendmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    }
    std::byte packed[packed_bytes];
    std::byte* end = packed;
    for (const iovec& part : parts) {
      std::memcpy(end, part.iov_base, part.iov_len);
      end += part.iov_len;
    }
    return ::send(socket_.get(), packed, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
  }

  /// The receiver says one byte before it closes in peace. True if it has.
  bool look_for_farewell() {
    if (link_->both_ways) {
      // The peer's end of the edge in may still be there: it is not to see the socket close.
      left_ = link_->peer_left.load(std::memory_order_acquire);
      return left_;
    }
    char byte = 0;
    used_up(&ProxyHeard::readable);
    const ssize_t bytes = ::recv(socket_.get(), &byte, 1, MSG_DONTWAIT);
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

  Progress leave() {
    if (stream_ == 0 && link_->healthy()) {
      const StepHeader header{goodbye, 0};
      const ssize_t sent =
          ::send(socket_.get(), &header, sizeof header, MSG_DONTWAIT | MSG_NOSIGNAL);
      if (sent < 0 && would_block(errno)) {
        blocked_ = true;
        return Progress::none;
      }
    }
    return Progress::ended;
  }

  Word step_ = 0;  // being sent
  Word told_ = 0;
  Index sent_ = 0;  // bytes of it on this stream, with the header
  unsigned quiet_ = 0;
  bool blocked_ = false;  // the socket takes nothing until it is writable
  bool left_ = false;     // the receiver has said farewell
  bool arrived_ = false;  // has had a socket
};

class ReceiveStream final : public Stream {
 public:
  ReceiveStream(std::shared_ptr<SocketLink> link, int channel, int stream)
      : Stream{std::move(link), channel, stream} {
    if (stream == 0) staging_.resize(staging_bytes);
  }

  Progress progress(ProxyCounters& counters) override {
    if (ending()) return leave();
    if (revoked()) return Progress::none;
    if (!socket_ && !arrive()) return Progress::none;
    Progress progress = Progress::none;
    Index left_bytes = turn_bytes;
    large_done_ = false;
    while (left_bytes > 0 && socket_) {
      while (!large_done_ && unpack(counters)) progress = Progress::some;
      if (!socket_ || large_done_ || !wants_bytes() || (heard.told && !heard.readable)) break;
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
    if (!socket_) return {-1, 0, ending() || waiting(), false};
    return {socket_.get(), short(wants_bytes() ? POLLIN | POLLRDHUP : 0), ending() || can_unpack(),
            polled() && wants_credit(), holds_large() && !ending()};
  }

 private:
  bool waiting() const { return !arrived_ && link_->arriving.has(line()); }
  bool arrive() {
    if (arrived_ || gave_up_) return false;
    socket_ = link_->arriving.take(line());
    if (socket_) tune(socket_.get());
    arrived_ = bool(socket_);
    if (!arrived_ && std::chrono::steady_clock::now() > link_->deadline) {
      gave_up_ = true;
      link_->fail_with(
          Errc::timed_out,
          fmt::format("rank {} on {} has not connected (its process is stopped or it "
                      "cannot reach this host); start all ranks, or raise the deadline",
                      link_->edge.peer.rank, link_->edge.peer.host));
    }
    return arrived_;
  }

  bool has_credit() const {
    return step_ < HostMemory::load_credit(wire_.drained) + Word(wire_.slot_count);
  }
  std::size_t staged() const { return end_ - begin_; }
  /// A step is being received: its header has come.
  bool inside() const { return inside_; }
  bool can_unpack() const {
    if (stream_ == 0) {
      if (inside_) return rest_ == 0 || staged() > 0;
      return staged() >= sizeof(StepHeader) && has_credit();
    }
    return inside_ ? rest_ == 0 : step_ < announced().load(std::memory_order_acquire);
  }
  /// A large step comes next, of which lanes may yet say where it goes.
  bool holds_large() const {
    if (wire_.bypass == nullptr || inside_ || staged() < sizeof(StepHeader)) return false;
    StepHeader header;
    std::memcpy(&header, staging_.data() + begin_, sizeof header);
    return Index(header.bytes) >= Bypass::least_bytes;
  }
  /// Waits for the lanes to give credit, of which nobody tells it.
  bool wants_credit() const { return !inside_ && staged() >= sizeof(StepHeader) && !has_credit(); }
  bool wants_bytes() const {
    if (inside_) return rest_ > 0;
    return stream_ == 0 && staged() < sizeof(StepHeader);
  }

  /// Goes on with what is here already. True if that led anywhere.
  bool unpack(ProxyCounters& counters) {
    if (!can_unpack()) return false;
    if (!inside_) {
      if (stream_ == 0 && !open_step()) return false;
      const Piece mine = piece(step_);
      at_ = slot(step_) + mine.offset;
      rest_ = mine.bytes;
      inside_ = true;
    }
    if (const Index ready = std::min(Index(staged()), rest_); ready > 0) {
      const Bypass::Use use{past_slot(step_) ? wire_.bypass : nullptr};
      if (!use.allowed()) return false;
      std::memcpy(at_, staging_.data() + begin_, std::size_t(ready));
      begin_ += std::size_t(ready);
      at_ += ready;
      rest_ -= ready;
    }
    if (rest_ == 0) {
      inside_ = false;
      large_done_ = wire_.bypass != nullptr && Index(bytes_of(step_)) >= Bypass::least_bytes;
      after_large_ = large_done_;
      ++step_;
      if (stream_ == 0) ++counters.steps;
      link_->publish(channel_, stream_, step_);
    }
    return true;
  }

  /// Takes the next header. False if there will be no further step.
  bool open_step() {
    StepHeader header;
    std::memcpy(&header, staging_.data() + begin_, sizeof header);
    begin_ += sizeof header;
    if (header.step == goodbye) {
      socket_.reset();
      if (link_->both_ways) {
        if (const auto out = link_->mate()) out->peer_left.store(true, std::memory_order_release);
      }
      return false;
    }
    if (header.step != step_ || header.bytes > Word(slot_bytes())) {
      socket_.reset();
      link_->fail_with(Errc::internal, fmt::format("step {} of {} bytes came where step {} was due",
                                                   header.step, header.bytes, step_));
      return false;
    }
    const bool past = wire_.bypass != nullptr && Index(header.bytes) >= Bypass::least_bytes &&
                      wire_.bypass->offered(step_, Index(header.bytes));
    size_of(step_) = header.bytes | (past ? Bypass::mark : 0);
    announced().store(step_ + 1, std::memory_order_release);
    if (link_->streams > 1) wake_others();
    return true;
  }

  /// The rest of the step straight into its slot, and what follows into the staging area. `more`:
  /// the socket gave all that was asked for.
  Index receive_some(bool& more) {
    if (begin_ == end_) begin_ = end_ = 0;
    if (begin_ > 0) {  // a part of a header
      std::memmove(staging_.data(), staging_.data() + begin_, staged());
      end_ -= std::exchange(begin_, 0);
    }
    iovec parts[2];
    std::size_t count = 0, asked = 0;
    const Index direct = std::min(rest_, turn_bytes);
    if (inside_ && rest_ > 0) parts[count++] = {at_, std::size_t(direct)};
    if (stream_ == 0 && direct == (inside_ ? rest_ : 0)) {
      // After a large step comes another, more often than not: not by way of the staging area.
      const bool large =
          inside_ ? wire_.bypass != nullptr && direct >= Bypass::least_bytes : after_large_;
      const std::size_t room = large ? sizeof(StepHeader) : staging_.size();
      parts[count++] = {staging_.data() + end_, room - end_};
    }
    for (std::size_t n = 0; n < count; ++n) asked += parts[n].iov_len;
    ssize_t got = 0;
    const Bypass::Use use{inside_ && past_slot(step_) ? wire_.bypass : nullptr};
    if (!use.allowed()) return -1;
    if (count == 1) {
      got = ::recv(socket_.get(), parts[0].iov_base, parts[0].iov_len, MSG_DONTWAIT);
    } else {
      msghdr message{};
      message.msg_iov = parts;
      message.msg_iovlen = count;
      got = ::recvmsg(socket_.get(), &message, MSG_DONTWAIT);
    }
    if (got > 0) {
      if (receives_++ % receives_per_hush == 0) hush(socket_.get());
      const Index into_slot = inside_ ? std::min(Index(got), direct) : 0;
      at_ += into_slot;
      rest_ -= into_slot;
      end_ += std::size_t(got - into_slot);
      more = std::size_t(got) == asked;
      if (!more) used_up(&ProxyHeard::readable);
    } else if (got == 0) {
      if (stream_ == 0) {
        lose("its process ended or closed the connection", 0);
      } else {
        socket_.reset();  // the first stream says why
      }
    } else if (!would_block(errno)) {
      lose("the connection broke", errno);
    } else if (errno != EINTR) {
      used_up(&ProxyHeard::readable);
    }
    return Index(got);
  }

  Progress leave() {
    if (!socket_) socket_ = link_->arriving.take(line());
    // Of a socket in common the edge out says goodbye.
    if (socket_ && link_->healthy() && !link_->both_ways) {
      ::send(socket_.get(), "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
    }
    return Progress::ended;
  }

  bool arrived_ = false, gave_up_ = false;
  Word step_ = 0;        // being received
  bool inside_ = false;  // its header has come
  std::byte* at_ = nullptr;
  Index rest_ = 0;  // bytes of its piece still to come, for `at_`
  std::vector<std::byte> staging_;
  unsigned receives_ = 0;
  bool large_done_ = false;          // in this turn: the lanes may now say where the next one goes
  bool after_large_ = false;         // the last step was
  std::size_t begin_ = 0, end_ = 0;  // of what has come early, in `staging_`
};

}  // namespace

void SocketLink::publish(int channel, int stream, Word steps) {
  const Wire& wire = wires[std::size_t(channel)];
  Word* const told = edge.side == Side::sender ? wire.drained : wire.posted;
  if (streams == 1) return HostMemory::store_release(told, steps);
  std::atomic<Word>* const all = done.get() + std::size_t(channel) * std::size_t(streams);
  all[stream].store(steps);
  Word least = steps;
  for (int s = 0; s < streams; ++s) least = std::min(least, all[s].load());
  // Streams of other threads come here too; the count never goes back.
  const cuda::atomic_ref<Word, cuda::thread_scope_system> count{*told};
  Word seen = count.load();
  while (seen < least && !count.compare_exchange_weak(seen, least)) {
  }
}

void SocketLink::lose(const char* what, int os_code) {
  fail_with(Errc::peer_lost,
            os_code == 0
                ? fmt::format("lost rank {} on {} ({})", edge.peer.rank, edge.peer.host, what)
                : fmt::format("lost rank {} on {} ({}: {})", edge.peer.rank, edge.peer.host, what,
                              std::strerror(os_code)),
            os_code);
}

void SocketLink::fail_with(Errc code, std::string what, int os_code) {
  if (closing.load() || context.status == nullptr) return;
  context.status->set(edge_error(edge, name, code, std::move(what), os_code));
}

std::shared_ptr<ProxyTask> make_send_stream(std::shared_ptr<SocketLink> link, int channel,
                                            int stream, Fd socket) {
  return std::make_shared<SendStream>(std::move(link), channel, stream, std::move(socket));
}
std::shared_ptr<ProxyTask> make_receive_stream(std::shared_ptr<SocketLink> link, int channel,
                                               int stream) {
  return std::make_shared<ReceiveStream>(std::move(link), channel, stream);
}

}  // namespace ccl::detail
