#include <ccl/log.hpp>
#include <ccl/proxy.hpp>
#include <ccl/settings.hpp>
#include <ccl/transport/socket.hpp>

#include <fmt/format.h>

#include <cstring>

#include "gpu/host_pin.hpp"
#include "gpu/memory.hpp"
#include "transport/net_choice.hpp"
#include "transport/proof.hpp"
#include "transport/socket_stream.hpp"
#include <net/auth.hpp>
#include <net/engine.hpp>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

namespace ccl {
namespace detail {
namespace {

/// What a sender says on each of its sockets; the secret is proved along with it.
struct Hello {
  Nonce nonce;  // from the receiver's handshake
  unsigned long long edge_id;
  WireShape shape;
  int index;  // channel * streams + stream
};

/// Ready for steps: a rank that is late may leave data unread for as long as it likes, so only
/// keep-alives tell a dead host, never unread data.
Fd tuned(int socket) {
  const int on = 1, never = 0;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ::setsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &never, sizeof never);
  return Fd{socket};
}

/// The receiver's listening socket. Closes when it goes.
class Door {
 public:
  ~Door() {
    if (!gate_) return;
    const std::lock_guard lock{net::Engine::get().mutex()};
    gate_->close();
  }
  Result<void> open(const net::Address& where, const net::Secret& secret,
                    std::function<void(net::Accepted)> accept) {
    const std::lock_guard lock{net::Engine::get().mutex()};
    CCL_TRY(gate_, net::Gate::open(where, secret, std::move(accept)));
    return {};
  }
  net::WireAddress address() const { return gate_->address().wire(); }

 private:
  std::shared_ptr<net::Gate> gate_;
};

}  // namespace

/// What the owner of a connection holds: when it goes, the streams end by themselves.
struct SocketEnd {
  TransportContext context;
  std::shared_ptr<SocketLink> link = std::make_shared<SocketLink>();
  HostPin pin;              // on a GPU rank; only lanes need it, so it need not stay with the link
  std::vector<Wire> wires;  // as the lanes see them
  Nonce nonce{};            // the receiver's
  std::shared_ptr<Mailbox> mailbox;  // of the receiver
  std::unique_ptr<Door> door;
  bool connected = false;

  ~SocketEnd() {
    door.reset();  // nobody puts a socket into the mailbox any more
    link->closing.store(true, std::memory_order_release);
    for (ProxyEngine* const engine : link->engines) engine->wake();
  }

  Error in_context(Error error) const {
    error.rank = link->edge.self.rank;
    error.peer = link->edge.peer.rank;
    error.host = link->edge.self.host;
    error.transport = SocketTransport::name;
    return error;
  }
  std::size_t sockets() const { return link->wires.size() * std::size_t(link->streams); }

  Result<void> set_up() {
    const WireShape& shape = link->edge.shape;
    CCL_TRY(const auto layout, WireLayout::of(shape));
    CCL_TRY(const Index threads, setting_integer("SOCKET_NTHREADS"));
    CCL_TRY(const Index each, setting_integer("NSOCKS_PERTHREAD"));
    CCL_TRY(link->memory, Mapping::anonymous(layout.bytes()));
    link->wires = wires = layout.wires(link->memory.base(), link->edge.side, true);
    if (context.arena != nullptr) {
      CCL_TRY(pin, HostPin::make(context.arena->gpu(), link->memory.base(), layout.bytes()));
      wires = layout.wires(pin.on_device(), link->edge.side, true);
      link->polled = true;
    } else {
      for (std::size_t c = 0; c < wires.size(); ++c) {
        Bypass& past = link->bypasses.emplace_back(shape.slot_count);
        wires[c].bypass = link->wires[c].bypass = &past;
      }
    }
    link->status = context.status;
    link->deadline = std::chrono::steady_clock::now() +
                     std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                         std::chrono::duration<double>(context.deadline_s));
    link->engines.push_back(context.proxy);
    for (int n = 0; n < int(threads); ++n) link->engines.push_back(&context.proxy->further(n));
    set_streams(int((threads + 1) * each));
    return link->edge.side == Side::receiver ? listen() : Result<void>{};
  }

  void set_streams(int streams) {
    link->streams = streams;
    link->done = std::make_unique<std::atomic<Word>[]>(sockets());
    link->announced = std::make_unique<std::atomic<Word>[]>(link->wires.size());
  }

  Result<void> listen() {
    CCL_CHECK(fill_random(&nonce, sizeof nonce));
    CCL_TRY(const net::Address where, net::local_address());
    mailbox = std::make_shared<Mailbox>(sockets());
    door = std::make_unique<Door>();
    const auto accept = [mailbox = mailbox, nonce = nonce, edge = link->edge,
                         context = context](net::Accepted caller) {
      Hello hello{};
      if (caller.hello.size() == sizeof hello) {
        std::memcpy(&hello, caller.hello.data(), sizeof hello);
      }
      if (hello.nonce != nonce || hello.edge_id != edge.id || hello.index < 0 ||
          std::size_t(hello.index) >= mailbox->sockets.size()) {
        log_warn(LogPart::net, "refused a connection from {} for rank {} (it is for another edge)",
                 caller.from.to_string(), edge.self.rank);
        return;
      }
      if (hello.shape != edge.shape) {
        if (context.status == nullptr) return;
        context.status->set(edge_error(
            edge, SocketTransport::name, Errc::mismatch,
            fmt::format("the ends of edge {} do not match (the sender made {} channels of {} slots "
                        "of {} bytes)",
                        edge.id, hello.shape.channels, hello.shape.slot_count,
                        hello.shape.slot_bytes)));
        return;
      }
      int none = -1;
      Fd socket = tuned(caller.fd.release());
      if (mailbox->sockets[std::size_t(hello.index)].compare_exchange_strong(none, socket.get())) {
        socket.release();
        context.proxy->wake();
      }
    };
    return door->open(where, context.secret, accept);
  }

  Result<void> connect_all(const Handshake& theirs) {
    HandshakeCursor cursor;
    Hello hello{};
    hello.nonce = cursor.get<Nonce>(theirs);
    const net::Address where{cursor.get<net::WireAddress>(theirs)};
    const int streams = cursor.get<int>(theirs);
    if (streams < 1 || streams > 17 * 64 ||
        (where.family() != AF_INET && where.family() != AF_INET6)) {
      return fail(Errc::mismatch, "the receiver's handshake is not one of the socket transport");
    }
    set_streams(streams);  // the receiver's choice
    hello.edge_id = link->edge.id;
    hello.shape = link->edge.shape;
    const auto deadline = net::Deadline::after(context.deadline_s);
    for (std::size_t n = 0; n < sockets(); ++n) {
      hello.index = int(n);
      CCL_TRY(net::Fd socket,
              net::auth_connect(where, context.secret, std::as_bytes(std::span{&hello, 1}),
                                deadline, context.status));
      const int channel = int(n) / streams, stream = int(n) % streams;
      CCL_CHECK(start(stream, make_send_stream(link, channel, stream, tuned(socket.release()))));
    }
    return {};
  }

  Result<void> start(int stream, std::shared_ptr<ProxyTask> task) {
    return link->engines[std::size_t(stream) % link->engines.size()]->add(std::move(task));
  }

  Result<void> connect(const Handshake& theirs) {
    if (connected) return {};
    if (link->edge.side == Side::sender) {
      CCL_CHECK(connect_all(theirs));
    } else {
      for (int n = 0; n < int(sockets()); ++n) {
        const int channel = n / link->streams, stream = n % link->streams;
        CCL_CHECK(start(stream, make_receive_stream(link, channel, stream, mailbox)));
      }
    }
    connected = true;
    return {};
  }
};

}  // namespace detail

Result<void> SocketTransport::can_connect(const PeerInfo& from, const PeerInfo& to) {
  CCL_TRY(const bool allowed, detail::net_allows(name));
  if (allowed) return {};
  return fail(Errc::no_transport, fmt::format("socket does not connect rank {} to rank {} (CCL_NET "
                                              "is IB)",
                                              from.rank, to.rank));
}

Result<SocketTransport::End> SocketTransport::setup(TransportContext& context, const Edge& edge) {
  if (context.proxy == nullptr) {
    return fail(detail::edge_error(edge, name, Errc::invalid_usage,
                                   "sockets need a proxy engine (the context has none); set one"));
  }
  End end;
  end.end_ = std::make_shared<detail::SocketEnd>();
  end.end_->context = context;
  end.end_->link->edge = edge;
  if (auto done = end.end_->set_up(); !done) {
    return fail(end.end_->in_context(std::move(done).error()));
  }
  return end;
}

Handshake SocketTransport::End::handshake() const {
  Handshake mine{};
  if (!end_->door) return mine;
  detail::HandshakeCursor cursor;
  cursor.put(mine, end_->nonce);
  cursor.put(mine, end_->door->address());
  cursor.put(mine, end_->link->streams);
  return mine;
}

Result<Connection> SocketTransport::End::connect(const Handshake& theirs) {
  if (auto done = end_->connect(theirs); !done) {
    return fail(end_->in_context(std::move(done).error()));
  }
  Connection connection;
  connection.wires = end_->wires;
  connection.owner = end_;
  connection.transport = name;
  return connection;
}

}  // namespace ccl
