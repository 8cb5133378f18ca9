// User-defined transport: reliable steps over UDP between ranks of one host. This file has all of
// it; ccl has no code for it. docs/guide/own_transport.md explains the parts.
//
// Each end of an edge has a socket and, for each channel, a ring of slots. The sender's proxy cuts
// posted steps into numbered datagrams. The receiver's proxy accepts them in order. It answers with
// the next number that it expects and with the step up to which it has free slots. Datagrams that
// are not acknowledged in time are sent again, from the first of them on.
#include <ccl/algo/tree.hpp>
#include <ccl/collective/all_reduce.hpp>
#include <ccl/comm/communicator.hpp>
#include <ccl/proto/ll.hpp>
#include <ccl/proto/simple.hpp>
#include <ccl/transport/host_wire.hpp>
#include <ccl/transport/proxy_task.hpp>
#include <ccl/transport/transport.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

using ccl::Word;
using Clock = std::chrono::steady_clock;

constexpr Word payload_bytes = 8192;  // payload of a datagram
constexpr Word window = 8;            // datagrams in flight: fewer bytes than a socket buffers
// time until all datagrams are sent again
constexpr auto first_wait = std::chrono::milliseconds{5};
constexpr auto max_wait = std::chrono::milliseconds{200};
// time after which a peer that owes an answer is lost
constexpr auto silence = std::chrono::seconds{20};
constexpr int datagrams_per_turn = 32;  // datagrams of one edge, before the others get their turn

enum class Kind : std::uint32_t { data, probe, answer, goodbye };

struct Datagram {
  Word key;  // key of the edge: other datagrams are ignored
  Kind kind;
  std::uint32_t channel;
  Word number;      // data: its own number; answer: first number that is missing
  Word step;        // data: its step; answer: first step without a slot
  Word step_bytes;  // data: bytes of the whole step
  Word offset;      // data: offset in the step
};

/// Position in the stream of a channel: the datagram that begins there.
struct Location {
  Word number = 0, step = 0, offset = 0;
  /// Advances by one datagram of a step of `bytes` bytes. An empty step takes one datagram.
  void advance(Word bytes) {
    ++number;
    offset += payload_bytes;
    if (offset < bytes) return;
    offset = 0;
    ++step;
  }
};

struct ChannelState {
  ccl::Wire wire;
  // Members of the sender:
  Location base, next;  // first that is not acknowledged; next to send
  Word most = 0;        // lower numbers have been sent once
  Word limit = 0;       // lower steps may be sent: the receiver has slots for them
  Clock::duration spin_wait = first_wait;
  Clock::time_point due{};        // end of the current wait for an answer
  Clock::time_point readiness{};  // last answer, or first datagram sent after it
  bool owed = false;              // true: the peer owes an answer
  // Members of the receiver:
  Location expected;
  Word report_limit = 0;
  bool answers = false;  // true: a datagram has arrived since the last answer
};

/// One end of an edge. The connection and the task that serves it share its ownership.
struct UdpEnd {
  ccl::TransportContext context;
  ccl::Edge edge;
  int socket = -1;
  Word key = 0;
  std::vector<ChannelState> channels;
  std::unique_ptr<std::byte, void (*)(void*)> memory{nullptr, std::free};
  std::atomic<bool> closing{false};  // true: the owner is destroyed

  ~UdpEnd() {
    if (socket >= 0) ::close(socket);
  }

  ccl::Error error(ccl::Errc code, std::string what, int os_code = 0) const {
    ccl::Error e;
    e.code = code;
    e.what = std::move(what);
    e.rank = edge.self.rank;
    e.peer = edge.peer.rank;
    e.host = edge.self.host;
    e.transport = "udp";
    e.os_code = os_code;
    return e;
  }

  ccl::Result<void> open() {
    socket = ::socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    sockaddr_in any{};
    any.sin_family = AF_INET;
    any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (socket < 0 || ::bind(socket, reinterpret_cast<sockaddr*>(&any), sizeof any) != 0) {
      return ccl::fail(error(ccl::Errc::system,
                             fmt::format("no UDP socket on loopback ({}); raise the limit of open "
                                         "files, or bring up lo",
                                         std::strerror(errno)),
                             errno));
    }
    const int buffer = 1 << 20;
    // best effort: the system can grant less
    ::setsockopt(socket, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof buffer);
    make_wires();
    return {};
  }

  /// Allocates rings of slots and their counts, all zero: no slot has a flag, and no step is
  /// posted.
  void make_wires() {
    const auto up = [](std::size_t n) { return (n + 127) / 128 * 128; };
    const auto slots = std::size_t(edge.shape.slot_count);
    const std::size_t head = 4 * 128 + up(slots * sizeof(Word));
    const std::size_t each = head + slots * std::size_t(edge.shape.slot_bytes);
    const std::size_t bytes = up(each * std::size_t(edge.shape.channels));
    memory.reset(static_cast<std::byte*>(std::aligned_alloc(128, bytes)));
    std::memset(memory.get(), 0, bytes);
    channels.resize(std::size_t(edge.shape.channels));
    for (std::size_t c = 0; c < channels.size(); ++c) {
      std::byte* const at = memory.get() + c * each;
      // Words with different writers lie on different lines.
      const auto word = [at](std::size_t line) { return reinterpret_cast<Word*>(at + line * 128); };
      ccl::Wire& wire = channels[c].wire;
      wire.posted = word(0);
      wire.drained = word(1);
      (edge.side == ccl::EdgeSide::sender ? wire.sent : wire.received) = word(2);
      wire.sizes = word(4);
      wire.slots = reinterpret_cast<ccl::Packet*>(at + head);
      wire.slot_count = edge.shape.slot_count;
      wire.slot_packets = int(edge.shape.slot_bytes / ccl::Index(sizeof(ccl::Packet)));
      wire.proxied = true;
    }
  }
};

/// Proxy task of one end. The engine calls `progress`, which never blocks.
class UdpTask final : public ccl::ProxyTask {
 public:
  explicit UdpTask(std::shared_ptr<UdpEnd> end) : end_{std::move(end)} {
    const char* const loss = std::getenv("UDP_EXAMPLE_LOSS");  // one of n datagrams is dropped
    loss_ = loss == nullptr ? 0 : unsigned(std::atoi(loss));
  }

  Progress progress(ccl::ProxyCounters& counters) override {
    const bool closing = ending();  // read before `posted`: no more steps can be posted then
    if (failed()) return closing ? Progress::ended : Progress::none;
    const Word before = counters.bytes;
    bool some = listen(counters);
    bool idle = true;
    for (std::size_t c = 0; c < end_->channels.size(); ++c) {
      ChannelState& channel = end_->channels[c];
      if (sends()) {
        some = send_some(channel, std::uint32_t(c), counters) || some;
        idle = idle && channel.base.step == ccl::load_posted(channel.wire.posted);
      } else {
        answer(channel, std::uint32_t(c));
      }
    }
    if (closing && (!sends() || idle || gone_)) {
      for (int n = 0; n < 3 && !gone_; ++n)
        send({end_->key, Kind::goodbye, 0, 0, 0, 0, 0}, nullptr, 0);
      return Progress::ended;
    }
    return some || counters.bytes != before ? Progress::some : Progress::none;
  }

  ccl::ProxyInterest interest() const override {
    if (failed() || gone_) return {-1, 0, ending(), false};
    // A retransmission becomes due, and credit is returned without a call. Both need polling.
    bool timed = false;
    for (const ChannelState& channel : end_->channels) {
      timed = timed || (sends() ? channel.base.step < ccl::load_posted(channel.wire.posted)
                                : channel.expected.step >= channel.report_limit);
    }
    return {end_->socket, POLLIN, ending(), timed};
  }
  bool ending() const override { return end_->closing.load(std::memory_order_acquire); }

 private:
  bool sends() const { return end_->edge.side == ccl::EdgeSide::sender; }
  bool failed() const { return end_->context.failed(); }
  Word slot_limit(const ChannelState& c) const {
    return ccl::load_drained(c.wire.drained) + Word(c.wire.slot_count);
  }

  void lose(const std::string& why, int os_code = 0) {
    gone_ = true;
    if (ending()) return;
    const ccl::PeerInfo& peer = end_->edge.peer;
    end_->context.fail_communicator(end_->error(
        ccl::Errc::peer_lost,
        fmt::format("lost rank {} on {} ({}); look why it ended", peer.rank, peer.host, why),
        os_code));
  }

  /// Sends a datagram. Returns false if the socket accepts nothing now.
  bool send(const Datagram& head, const std::byte* data, Word bytes) {
    if (loss_ != 0 && luck_() % loss_ == 0) return true;
    iovec parts[2] = {{const_cast<Datagram*>(&head), sizeof head},
                      {const_cast<std::byte*>(data), std::size_t(bytes)}};
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = bytes > 0 ? 2 : 1;
    if (::sendmsg(end_->socket, &message, MSG_NOSIGNAL) >= 0) return true;
    if (errno == ECONNREFUSED) lose("its socket is closed", errno);
    return false;
  }

  bool send_some(ChannelState& c, std::uint32_t number, ccl::ProxyCounters& counters) {
    if (gone_) return false;
    const Word posted = ccl::load_posted(c.wire.posted);  // acquires sizes and slots too
    const auto now = Clock::now();
    if (!c.owed) c.readiness = now;
    if (c.owed && now > c.due) {
      if (now - c.readiness > silence) {
        lose(fmt::format("it has not answered for {} s", silence.count()));
        return false;
      }
      c.next = c.base;
      c.spin_wait = std::min<Clock::duration>(2 * c.spin_wait, max_wait);
      c.owed = false;
    }
    bool some = false;
    while (c.next.step < posted && c.next.step < c.limit &&
           c.next.number < c.base.number + window) {
      const Word bytes = c.wire.sizes[c.next.step & Word(c.wire.slot_count - 1)];
      const Word part = std::min(bytes - c.next.offset, payload_bytes);
      const auto* slot = reinterpret_cast<const std::byte*>(c.wire.slot(c.next.step));
      const Datagram head{end_->key,   Kind::data, number,       c.next.number,
                          c.next.step, bytes,      c.next.offset};
      if (!send(head, slot + c.next.offset, part)) break;
      if (c.next.number >= c.most) {
        c.most = c.next.number + 1;
        counters.bytes += part;
      }
      c.next.advance(bytes);
      expect_answer(c, now);
      some = true;
    }
    // The answer with the credit can be lost, so a probe requests it.
    if (!c.owed && c.base.step < posted && !gone_) {
      send({end_->key, Kind::probe, number, 0, 0, 0, 0}, nullptr, 0);
      expect_answer(c, now);
    }
    return some;
  }
  void expect_answer(ChannelState& c, Clock::time_point now) {
    if (c.owed) return;
    c.owed = true;
    c.due = now + c.spin_wait;
  }

  void answer(ChannelState& c, std::uint32_t number) {
    const Word limit = slot_limit(c);
    if (gone_ || (limit == c.report_limit && !c.answers)) return;
    if (!send({end_->key, Kind::answer, number, c.expected.number, limit, 0, 0}, nullptr, 0))
      return;
    c.report_limit = limit;
    c.answers = false;
  }

  /// Receives the datagrams that have arrived.
  bool listen(ccl::ProxyCounters& counters) {
    bool some = false;
    for (int n = 0; n < datagrams_per_turn && !gone_; ++n) {
      const ssize_t got = ::recv(end_->socket, buffer_.data(), buffer_.size(), 0);
      if (got < 0) {
        if (errno == ECONNREFUSED) lose("its socket is closed", errno);
        break;
      }
      Datagram head;
      if (got < ssize_t(sizeof head)) continue;
      std::memcpy(&head, buffer_.data(), sizeof head);
      if (head.key != end_->key || head.channel >= end_->channels.size()) continue;
      ChannelState& c = end_->channels[head.channel];
      some = true;
      if (head.kind == Kind::goodbye) {
        gone_ = true;  // ranks that still need the peer are notified by the bootstrap
      } else if (sends()) {
        if (head.kind == Kind::answer) acknowledge(c, head, counters);
      } else {
        c.answers = true;
        if (head.kind == Kind::data) take(c, head, Word(got) - sizeof head, counters);
      }
    }
    return some;
  }

  void acknowledge(ChannelState& c, const Datagram& head, ccl::ProxyCounters& counters) {
    // late, or an answer to another end
    if (head.number > c.most || head.number < c.base.number) return;
    const bool news = head.number > c.base.number || head.step > c.limit;
    c.limit = std::max(c.limit, head.step);
    const Word before = c.base.step;
    while (c.base.number < head.number) {
      c.base.advance(c.wire.sizes[c.base.step & Word(c.wire.slot_count - 1)]);
    }
    if (c.next.number < c.base.number) c.next = c.base;
    if (c.base.step != before) {
      counters.steps += c.base.step - before;
      ccl::drain(c.wire.drained, c.base.step);  // the lanes may fill these slots
    }
    c.readiness = Clock::now();
    if (!news) return;
    c.spin_wait = first_wait;
    c.owed = c.next.number > c.base.number;
    c.due = c.readiness + c.spin_wait;
  }

  void take(ChannelState& c, const Datagram& head, Word bytes, ccl::ProxyCounters& counters) {
    const Word slot_bytes = Word(c.wire.slot_packets) * sizeof(ccl::Packet);
    if (head.number != c.expected.number || head.step != c.expected.step ||
        head.offset != c.expected.offset || head.step_bytes > slot_bytes ||
        head.offset + bytes > head.step_bytes || head.step >= slot_limit(c)) {
      return;  // repeated, out of order or foreign; the answer names the expected one
    }
    auto* const slot = reinterpret_cast<std::byte*>(c.wire.slot(head.step));
    std::memcpy(slot + head.offset, buffer_.data() + sizeof head, bytes);
    counters.bytes += bytes;
    c.expected.advance(head.step_bytes);
    if (c.expected.step == head.step) return;
    c.wire.sizes[head.step & Word(c.wire.slot_count - 1)] = head.step_bytes;
    ++counters.steps;
    ccl::post(c.wire.posted, c.expected.step);  // data and size, then the count
  }

  const std::shared_ptr<UdpEnd> end_;
  std::vector<std::byte> buffer_ = std::vector<std::byte>(sizeof(Datagram) + payload_bytes);
  unsigned loss_ = 0;
  std::minstd_rand luck_{std::random_device{}()};
  bool gone_ = false;  // true: the peer has left
};

/// Transport between CPU ranks of one host.
struct UdpTransport {
  static constexpr const char* name = "udp";
  static constexpr ccl::Scope scope = ccl::Scope::host;
  static constexpr bool peer_addressable = false;
  static constexpr bool proxied = true;
  // a step is visible only when all of it has arrived
  static constexpr int atomic_line_bytes = 128;

  class End {
   public:
    ccl::Handshake handshake() const {
      sockaddr_in mine{};
      socklen_t length = sizeof mine;
      ::getsockname(end_->socket, reinterpret_cast<sockaddr*>(&mine), &length);
      ccl::Handshake said{};
      std::memcpy(said.data(), &mine, sizeof mine);
      std::memcpy(said.data() + sizeof mine, &end_->key, sizeof end_->key);
      return said;
    }
    ccl::Result<ccl::Connection> connect(const ccl::Handshake& theirs) {
      sockaddr_in there{};
      Word key = 0;
      std::memcpy(&there, theirs.data(), sizeof there);
      std::memcpy(&key, theirs.data() + sizeof there, sizeof key);
      end_->key ^= key;  // equal at both ends, and made of both keys
      // The socket now receives only the peer's datagrams.
      if (::connect(end_->socket, reinterpret_cast<sockaddr*>(&there), sizeof there) != 0) {
        return ccl::fail(end_->error(ccl::Errc::network,
                                     fmt::format("no way to rank {} ({}); is lo up?",
                                                 end_->edge.peer.rank, std::strerror(errno)),
                                     errno));
      }
      CCL_CHECK(end_->context.add(std::make_shared<UdpTask>(end_)));
      ccl::Connection made;
      for (const ChannelState& channel : end_->channels) made.wires.push_back(channel.wire);
      // The task lives until all data is sent, and keeps the memory for that time.
      made.owner = std::shared_ptr<void>(end_.get(), [end = end_](void*) {
        end->closing.store(true, std::memory_order_release);
        end->context.wake();
      });
      made.transport = name;
      return made;
    }

   private:
    friend struct UdpTransport;
    std::shared_ptr<UdpEnd> end_;
  };

  static ccl::Result<void> can_connect(const ccl::PeerInfo& from, const ccl::PeerInfo& to) {
    const auto no = [&](const char* why) {
      return ccl::fail(ccl::Errc::no_transport,
                       fmt::format("udp does not connect rank {} to rank {} "
                                   "({}); socket would",
                                   from.rank, to.rank, why));
    };
    if (from.device >= 0 || to.device >= 0) return no("it is for CPU ranks");
    if (from.host_hash != to.host_hash) return no("they are on different hosts");
    return {};
  }
  static ccl::Result<End> setup(ccl::TransportContext& context, const ccl::Edge& edge) {
    End end;
    end.end_ = std::make_shared<UdpEnd>();
    end.end_->context = context;
    end.end_->edge = edge;
    std::random_device random;
    end.end_->key = Word(random()) << 32 | random();
    CCL_CHECK(end.end_->open());
    return end;
  }
};
static_assert(ccl::Transport<UdpTransport>);

template <class Algo, class Proto>
ccl::Result<void> sum(const ccl::Communicator& comm, ccl::Index count) {
  using Sum = ccl::Collective<ccl::AllReduce, Algo, Proto, UdpTransport>;
  CCL_TRY(const auto all_reduce, Sum::create(comm));
  std::vector<float> data(static_cast<std::size_t>(count));
  for (int round = 0; round < 3; ++round) {
    for (std::size_t i = 0; i < data.size(); ++i) data[i] = float(i % 100) * float(comm.rank() + 1);
    CCL_CHECK(all_reduce(data.data(), data.data(), count, ccl::Sum{}));
    const float factor = float(comm.ranks() * (comm.ranks() + 1) / 2);
    for (std::size_t i = 0; i < data.size(); ++i) {
      if (data[i] == float(i % 100) * factor) continue;
      return ccl::fail(ccl::Errc::internal, fmt::format("element {} is {}", i, data[i]));
    }
  }
  if (comm.rank() == 0)
    std::printf("%s: %lld sums are right\n", all_reduce.name().c_str(), (long long)count);
  return {};
}

ccl::Result<void> run() {
  CCL_TRY(const auto comm, ccl::Communicator::from_env());
  CCL_CHECK((sum<ccl::Tree, ccl::Simple>(comm, 300'000)));
  CCL_CHECK((sum<ccl::Tree, ccl::LL>(comm, 5'000)));
  return comm.finalize();
}

int main() {
  const auto done = run();
  if (!done) std::fprintf(stderr, "%s\n", done.error().message().c_str());
  return done ? 0 : 1;
}
