// Network of the test on `ProxiedEnd`: steps are sent unchanged over one TCP connection per
// channel.
#include <ccl/detail/transport/proxied_end.hpp>

#include <optional>
#include <string>
#include <vector>

#include "support/driver.hpp"
#include "support/lent.hpp"
#include "support/processes.hpp"
#include "transport/handshake_fields.hpp"
#include "transport/proxied/end.hpp"
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace ccl;
using namespace ccl::test;

namespace {

struct LineLink : detail::ProxiedLink {
  static constexpr const char* name = "line";
  int reported = 0, readiness = 0;

  Result<void> prepare() {
    reported = 77;
    return {};
  }
  std::size_t lines() const { return wires.size(); }
  void write_fields(Handshake& mine, detail::HandshakeCursor& cursor) const {
    cursor.put(mine, reported);
  }
  Result<void> read_fields(const Handshake& theirs, detail::HandshakeCursor& cursor) {
    readiness = cursor.get<int>(theirs);
    return readiness == 77 ? Result<void>{} : fail(Errc::mismatch, "not a line");
  }
  static Result<void> receive(const std::shared_ptr<LineLink>& link);
  static Result<void> send(const std::shared_ptr<LineLink>& link, std::size_t line,
                           detail::net::SecureSocket socket);
  Result<void> wait_connected(const detail::net::Deadline&) { return {}; }
  void wake() { context.proxy->wake(); }
};

/// A step is its size, then its bytes.

class LineTask : public ProxyTask {
 public:
  LineTask(std::shared_ptr<LineLink> link, std::size_t line, detail::net::SecureSocket socket)
      : link_{std::move(link)},
        line_{line},
        wire_{link_->wires[line]},
        socket_{std::move(socket)} {}
  bool ending() const override { return link_->closing.load(std::memory_order_acquire); }
  bool sends() const { return link_->edge.side == EdgeSide::sender; }
  bool can_move() const {
    return sends()
               ? step_ < detail::HostMemory::load_acquire(wire_.posted)
               : step_ < detail::HostMemory::load_credit(wire_.drained) + Word(wire_.slot_count);
  }
  ProxyInterest interest() const override {
    if (!socket_) return {-1, 0, ending() || link_->arriving.contains(line_), false};
    const short events = !can_move() ? 0 : sends() ? POLLOUT : POLLIN;
    return {socket_.get(), events, ending() || (can_move() && socket_.buffered()), false};
  }
  Progress progress(ProxyCounters& counters) override {
    const bool closing = ending();
    if (!socket_ && !sends()) socket_ = link_->arriving.take(line_);
    bool moved = false;
    while (socket_ && can_move() && pass()) {
      moved = true;
      ++counters.steps;
      detail::HostMemory::store_release(sends() ? wire_.drained : wire_.posted, ++step_);
    }
    if (closing && (!sends() || !can_move())) return Progress::ended;
    return moved ? Progress::some : Progress::none;
  }

 private:
  /// Moves the rest of a step, if the socket is ready.
  bool pass() {
    Word& size = wire_.sizes[step_ % Word(wire_.slot_count)];
    const auto whole = [&] { return at_ < sizeof size ? sizeof size : sizeof size + size; };
    for (; at_ < sizeof size || at_ < whole();) {
      auto* const from = at_ < sizeof size ? reinterpret_cast<char*>(&size) + at_
                                           : reinterpret_cast<char*>(wire_.slot(step_)->word) +
                                                 (at_ - sizeof size);
      const auto rest = std::as_writable_bytes(std::span{from, whole() - at_});
      const ssize_t now = sends() ? socket_.send(rest) : socket_.recv(rest);
      if (now <= 0) return false;
      at_ += std::size_t(now);
    }
    at_ = 0;
    return true;
  }

  const std::shared_ptr<LineLink> link_;
  const std::size_t line_;
  const Wire wire_;
  detail::net::SecureSocket socket_;
  Word step_ = 0;
  std::size_t at_ = 0;
};

Result<void> LineLink::receive(const std::shared_ptr<LineLink>& link) {
  for (std::size_t n = 0; n < link->lines(); ++n) {
    CCL_CHECK(
        link->context.proxy->add(std::make_shared<LineTask>(link, n, detail::net::SecureSocket{})));
  }
  return {};
}
Result<void> LineLink::send(const std::shared_ptr<LineLink>& link, std::size_t line,
                            detail::net::SecureSocket socket) {
  return link->context.proxy->add(std::make_shared<LineTask>(link, line, std::move(socket)));
}

struct LineTransport {
  static constexpr const char* name = "line";
  static constexpr Scope scope = Scope::network;
  static constexpr bool peer_addressable = false;
  static constexpr bool proxied = true;
  static constexpr int atomic_line_bytes = 128;
  using End = detail::ProxiedEnd<LineLink>;
  static Result<void> can_connect(const PeerInfo&, const PeerInfo&) { return {}; }
  static Result<End> setup(TransportContext& context, const Edge& edge) {
    return End::make(context, edge);
  }
};
static_assert(Transport<LineTransport>);

}  // namespace

TEST_CASE("a network of one file carries steps both ways") {
  const WireShape shape = GENERATE(WireShape{1, 2, 128}, WireShape{3, 8, 4096});
  check_two_threads([&](int rank, int fd) {
    Lent lent;
    auto duplex = connect_pair<LineTransport>(lent.context, rank, shape, fd);
    if (!duplex) return duplex.error().message();
    std::string problem = exchange(*duplex, rank, 1 - rank, 100, &lent.status, &lent.proxy);
    char mine = 1, theirs = 0;
    (void)swap_bytes(fd, &mine, &theirs, 1);
    return problem;
  });
}

TEST_CASE("ends of different shapes are refused at the receiver") {
  Lent sender, receiver;
  const PeerInfo a = info_of(0), b = info_of(1);
  auto from = LineTransport::setup(sender.context,
                                   edge_of(a, b, EdgeSide::sender, WireShape{1, 2, 128}, 7));
  auto to = LineTransport::setup(receiver.context,
                                 edge_of(a, b, EdgeSide::receiver, WireShape{1, 4, 128}, 7));
  REQUIRE(from.has_value());
  REQUIRE(to.has_value());
  REQUIRE(from->connect(to->handshake()).has_value());
  REQUIRE(wait_until([&] { return !receiver.status.ok(); }));
  const Error error = receiver.status.result().error();
  CHECK(error.code == Errc::mismatch);
  CHECK(error.transport == "line");
  CHECK(error.what.find("1 channels of 2 slots of 128 bytes") != error.what.npos);
}

TEST_CASE("what an end cannot do without is said with the edge's name") {
  Lent lent;
  const Edge edge = edge_of(info_of(0), info_of(1), EdgeSide::sender, WireShape{1, 2, 128}, 7);
  TransportContext no_proxy = lent.context;
  no_proxy.proxy = nullptr;
  const auto without = LineTransport::setup(no_proxy, edge);
  REQUIRE(!without.has_value());
  CHECK(without.error().code == Errc::invalid_usage);
  CHECK(without.error().peer == 1);
  CHECK(without.error().transport == "line");
  auto end = LineTransport::setup(lent.context, edge);
  REQUIRE(end.has_value());
  const auto foreign = end->connect(Handshake{});
  REQUIRE(!foreign.has_value());
  CHECK(foreign.error().code == Errc::mismatch);
  CHECK(foreign.error().what.find("not one of the line transport") != foreign.error().what.npos);
}

namespace {
/// Addresses at which a receiver listens, as its handshake says.
std::vector<std::string> listens_at(const Handshake& handshake) {
  detail::HandshakeCursor cursor;
  (void)cursor.get<detail::Nonce>(handshake);
  std::vector<std::string> all(cursor.get<std::size_t>(handshake));
  for (std::string& one : all) {
    one = detail::net::Address{cursor.get<detail::net::WireAddress>(handshake)}.to_string();
  }
  return all;
}
}  // namespace

TEST_CASE("edges of a communicator share a port and a descriptor, and each gets its own callers") {
  Lent lent;
  const PeerInfo a = info_of(0), b = info_of(1);
  const WireShape shape{1, 2, 128};
  constexpr int edges = 40;
  const auto receiver_of = [&](TransportContext& context, unsigned long long id) {
    auto end = LineTransport::setup(context, edge_of(a, b, EdgeSide::receiver, shape, id));
    REQUIRE(end.has_value());
    return std::move(*end);
  };
  std::optional<LineTransport::End> first{receiver_of(lent.context, 0)};
  const std::size_t files = Holdings::of_this_process().files;
  std::vector<LineTransport::End> receivers;
  for (int n = 1; n < edges; ++n) receivers.push_back(receiver_of(lent.context, unsigned(n)));
  CHECK(Holdings::of_this_process().files == files);
  const auto place = listens_at(first->handshake());
  for (const auto& end : receivers) CHECK(listens_at(end.handshake()) == place);
  // A forked child has a socket of its own.
  const pid_t child = ::fork();
  if (child == 0) {
    Lent own;
    std::_Exit(listens_at(receiver_of(own.context, 0).handshake()) != place ? 0 : 1);
  }
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  // The socket stays until its last edge ends. Another secret has its own.
  first.reset();
  Lent other;
  other.context.secret[3] = std::byte{1};
  CHECK(listens_at(receiver_of(other.context, 1).handshake()) != place);
  // An edge takes no caller of another one, although both have one port.
  std::vector<LineTransport::End> senders;
  for (int n = 1; n < edges; n += 13) {
    auto sender =
        LineTransport::setup(lent.context, edge_of(a, b, EdgeSide::sender, shape, unsigned(n)));
    REQUIRE(sender.has_value());
    auto out = sender->connect(receivers[std::size_t(n - 1)].handshake());
    if (!out) FAIL(out.error().what);
    auto in = receivers[std::size_t(n - 1)].connect(Handshake{});
    REQUIRE(in.has_value());
    Wire &to = out->wires[0], &from = in->wires[0];
    to.sizes[0] = 8;
    *reinterpret_cast<Word*>(to.slot(0)) = Word(n);
    detail::HostMemory::store_release(to.posted, Word{1});
    lent.proxy.wake();
    REQUIRE(wait_until([&] { return detail::HostMemory::load_acquire(from.posted) == 1; }));
    CHECK(*reinterpret_cast<Word*>(from.slot(0)) == Word(n));
    senders.push_back(std::move(*sender));
  }
  CHECK(lent.status.ok());
}
