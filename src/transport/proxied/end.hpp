#pragma once

#include <ccl/comm/log.hpp>
#include <ccl/detail/runtime/proxy_engine.hpp>
#include <ccl/detail/transport/proxied_end.hpp>

#include <fmt/format.h>

#include <concepts>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "gpu/host_pin.hpp"
#include "gpu/memory.hpp"
#include "transport/proof.hpp"
#include "transport/proxied/link.hpp"
#include "transport/wire_layout.hpp"
#include "net/auth.hpp"
#include "net/engine.hpp"

namespace ccl::detail {

/// What a network adds to a `ProxiedLink`. One source file that has such a link, a header that
/// names `ProxiedEnd` of it, and `template class ProxiedEnd<Link>` are a transport.
///   prepare()       reads the settings and makes its own memory.
///   doors()         the addresses where the receiver listens, at most `max_listeners`.
///   furnish()       adds to `wires`, before the lanes get them; need not be there.
///   listener_of(n)      to which of them the sender's line n goes, modulo their number.
///   lines()         TCP connections that the sender makes.
///   tell, hear      what the receiver's handshake says besides where its door is.
///   receive(link)   at the receiver: adds its tasks, which wait for lines in `arriving`.
///   send(link, n, socket)  at the sender: adds those of line n.
///   settle(deadline)       at the sender: waits until it works.
///   lines_go_both_ways(), lines_come(), lend(n, socket)  need not be there: see `ProxiedLink`.
///   wake()          the owner has gone, or a line has come: whoever runs the tasks is to look.
template <class Link>
concept NetworkLink = std::derived_from<Link, ProxiedLink> &&
    requires(Link& link, const std::shared_ptr<Link>& shared, Handshake& out, const Handshake& in,
             HandshakeCursor& cursor, const net::Deadline& deadline) {
  { Link::name } -> std::convertible_to<const char*>;
  { link.prepare() } -> std::same_as<Result<void>>;
  { link.lines() } -> std::same_as<std::size_t>;
  link.tell(out, cursor);
  { link.hear(in, cursor) } -> std::same_as<Result<void>>;
  { Link::receive(shared) } -> std::same_as<Result<void>>;
  { Link::send(shared, std::size_t{}, Fd{}) } -> std::same_as<Result<void>>;
  { link.wait_connected(deadline) } -> std::same_as<Result<void>>;
  link.wake();
};

/// What the sender says on each of its lines; the secret is proved along with it.
struct SocketHello {
  Nonce nonce;  // from the receiver's handshake
  unsigned long long edge_id;
  WireShape shape;
  std::size_t line;
  bool both_ways;  // the line is to carry the edge back as well
};

/// What the owner of a connection holds: when it goes, the tasks end by themselves.
template <class Link>
struct ProxiedBody {
  static_assert(NetworkLink<Link>);
  std::shared_ptr<Link> link = std::make_shared<Link>();
  HostPin pin;              // on a GPU rank; only lanes need it, so it need not stay with the link
  std::vector<Wire> wires;  // as the lanes see them
  Nonce nonce{};            // the receiver's
  std::vector<std::shared_ptr<net::Acceptor>> gates;
  bool connected = false;

  ~ProxiedBody() {
    if (!gates.empty()) {
      const std::lock_guard lock{net::Engine::get().mutex()};
      for (const auto& acceptor : gates) acceptor->close();  // nobody puts a line into the mailbox any more
    }
    link->closing.store(true, std::memory_order_release);
    if (link->context.proxy != nullptr) link->wake();
  }

  Error in_context(Error error) const {
    error.rank = link->edge.self.rank;
    error.peer = link->edge.peer.rank;
    error.host = link->edge.self.host;
    error.transport = Link::name;
    return error;
  }

  Result<void> set_up() {
    TransportContext& context = link->context;
    if (context.proxy == nullptr) {
      return fail(
          Errc::invalid_usage,
          fmt::format("{} needs a proxy engine (the context has none); set one", Link::name));
    }
    link->polled = context.arena != nullptr;
    link->deadline = net::Deadline::after(context.deadline_s).at();
    CCL_CHECK(WireLayout::of(link->edge.shape));  // before memory is made for it
    CCL_CHECK(link->prepare());
    CCL_TRY(const auto layout, WireLayout::of(link->edge.shape, link->slots_elsewhere));
    CCL_TRY(link->memory, Mapping::anonymous(layout.bytes()));
    const EdgeSide side = link->edge.side;
    link->wires = layout.wires(link->memory.base(), side, true);
    link->prepare_wires();
    wires = link->wires;
    if (link->polled) {
      CCL_TRY(pin, HostPin::make(context.arena->gpu(), link->memory.base(), layout.bytes()));
      wires = layout.wires(pin.on_device(), side, true);
    }
    if (side == EdgeSide::sender) return {};
    CCL_CHECK(listen());
    return Link::receive(link);  // from here on it answers, whenever our `connect` comes
  }

  Result<void> listen() {
    CCL_CHECK(fill_random(&nonce, sizeof nonce));
    CCL_TRY(const auto listeners, link->listeners());
    link->arriving.resize(link->lines());
    const auto accept = [link = link, nonce = nonce](net::Accepted caller) {
      SocketHello hello{};
      if (caller.hello.size() == sizeof hello) {
        std::memcpy(&hello, caller.hello.data(), sizeof hello);
      }
      if (hello.nonce != nonce || hello.edge_id != link->edge.id ||
          hello.line >= link->arriving.size()) {
        log_warn(LogPart::net, "refused a connection from {} for rank {} (it is for another edge)",
                 caller.from.to_string(), link->edge.self.rank);
        return;
      }
      if (hello.shape != link->edge.shape) {
        if (link->context.status == nullptr) return;
        link->context.status->set(edge_error(link->edge, Link::name, Errc::mismatch,
                                             differing_shapes(link->edge, hello.shape)));
        return;
      }
      Fd socket{caller.fd.release()};
      if (hello.both_ways) link->lend(hello.line, socket.get());
      if (link->arriving.put(hello.line, socket) && !link->closing.load()) link->wake();
    };
    const std::lock_guard lock{net::Engine::get().mutex()};
    for (const net::Address& where : listeners) {
      CCL_TRY(auto acceptor, net::Acceptor::open(where, link->context.secret, accept));
      gates.push_back(std::move(acceptor));
    }
    return {};
  }

  Result<void> connect(const Handshake& theirs) {
    if (connected) return {};
    if (link->edge.side == EdgeSide::sender) {
      const auto deadline = net::Deadline::after(link->context.deadline_s);
      CCL_CHECK(call(theirs, deadline));
      CCL_CHECK(link->wait_connected(deadline));
    }
    connected = true;
    return {};
  }

  Result<void> call(const Handshake& theirs, const net::Deadline& deadline) {
    HandshakeCursor cursor;
    SocketHello hello{};
    hello.nonce = cursor.get<Nonce>(theirs);
    hello.edge_id = link->edge.id;
    hello.shape = link->edge.shape;
    const auto count = cursor.get<std::size_t>(theirs);
    std::vector<net::Address> listeners;
    for (std::size_t d = 0; d < count && d < Link::max_listeners; ++d) {
      listeners.emplace_back(cursor.get<net::WireAddress>(theirs));
      const int family = listeners.back().family();
      if (family != AF_INET && family != AF_INET6) listeners.clear();
    }
    if (listeners.empty() || listeners.size() != count) {
      return fail(Errc::mismatch, fmt::format("the receiver's handshake is not one of the {} "
                                              "transport",
                                              Link::name));
    }
    CCL_CHECK(link->hear(theirs, cursor));
    hello.both_ways = link->lines_go_both_ways();
    for (std::size_t n = 0; n < link->lines(); ++n) {
      if (link->lines_come()) {
        CCL_CHECK(Link::send(link, n, Fd{}));
        continue;
      }
      hello.line = n;
      CCL_TRY(Fd line, net::auth_connect(listeners[link->listener_of(n) % count], link->context.secret,
                                              std::as_bytes(std::span{&hello, 1}), deadline,
                                              link->context.status));
      if (hello.both_ways) link->lend(n, line.get());
      CCL_CHECK(Link::send(link, n, Fd{line.release()}));
    }
    return {};
  }
};

template <class Link>
Result<ProxiedEnd<Link>> ProxiedEnd<Link>::make(TransportContext& context, const Edge& edge) {
  ProxiedEnd end;
  end.body_ = std::make_shared<ProxiedBody<Link>>();
  end.body_->link->context = context;
  end.body_->link->edge = edge;
  if (auto done = end.body_->set_up(); !done) {
    return fail(end.body_->in_context(std::move(done).error()));
  }
  return end;
}

template <class Link>
Handshake ProxiedEnd<Link>::handshake() const {
  Handshake mine{};
  if (body_->gates.empty()) return mine;
  HandshakeCursor cursor;
  cursor.put(mine, body_->nonce);
  cursor.put(mine, body_->gates.size());
  for (const auto& acceptor : body_->gates) cursor.put(mine, acceptor->address().wire());
  body_->link->tell(mine, cursor);
  return mine;
}

template <class Link>
Result<Connection> ProxiedEnd<Link>::connect(const Handshake& theirs) {
  if (auto done = body_->connect(theirs); !done) {
    return fail(body_->in_context(std::move(done).error()));
  }
  Connection connection;
  connection.wires = body_->wires;
  connection.owner = body_;
  connection.transport = Link::name;
  return connection;
}

}  // namespace ccl::detail
