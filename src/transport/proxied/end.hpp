#pragma once

#include <ccl/comm/log.hpp>
#include <ccl/detail/runtime/proxy_engine.hpp>
#include <ccl/detail/runtime/settings.hpp>
#include <ccl/detail/transport/proxied_end.hpp>

#include <fmt/format.h>

#include <concepts>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "base/exceptions.hpp"
#include "base/field_check.hpp"
#include "base/io/mapping.hpp"
#include "base/numa.hpp"
#include "base/random.hpp"
#include "gpu/host_pin.hpp"
#include "gpu/memory.hpp"
#include "net/auth.hpp"
#include "transport/edge_error.hpp"
#include "transport/handshake_fields.hpp"
#include "transport/proof.hpp"
#include "transport/proxied/edge_listener.hpp"
#include "transport/proxied/link.hpp"
#include "transport/wire_layout.hpp"

namespace ccl::detail {

/// Functions that a network adds to a `ProxiedLink`. A transport consists of one source file with
/// such a link, a header that names its `ProxiedEnd`, and `template class ProxiedEnd<Link>`.
/// - prepare(): reads the settings and makes its own memory.
/// - listeners(): the addresses at which the receiver listens, at most `max_listeners`.
/// - prepare_wires(): optional; adds to `wires` before the lanes get them.
/// - listener_of(n): index of the listener for the sender's socket n, modulo their number.
/// - lines(): number of TCP connections that the sender makes.
/// - tell, on_message: further content of the receiver's handshake.
/// - receive(link): at the receiver; adds its tasks, which wait for sockets in `arriving`.
/// - send(link, n, socket): at the sender; adds the tasks of socket n.
/// - wait_connected(deadline): at the sender; waits until the connection works.
/// - lines_go_both_ways(), lines_come(), lend(n, socket): optional; see `ProxiedLink`.
/// - may_open_late, late_needs_setting, drivers(): optional. If the first is true, `send` may get a
///   socket that is empty, and the task asks `late_calls` for its connection when it has a step.
/// - wake(): the owner has gone or a socket has arrived; wakes the thread that runs the tasks.
template <class Link>
concept NetworkLink =
    std::derived_from<Link, ProxiedLink> &&
    requires(Link& link, const std::shared_ptr<Link>& shared, Handshake& out, const Handshake& in,
             HandshakeCursor& cursor, const net::Deadline& deadline) {
      { Link::name } -> std::convertible_to<const char*>;
      { link.prepare() } -> std::same_as<Result<void>>;
      { link.lines() } -> std::same_as<std::size_t>;
      link.write_fields(out, cursor);
      { link.read_fields(in, cursor) } -> std::same_as<Result<void>>;
      { Link::receive(shared) } -> std::same_as<Result<void>>;
      { Link::send(shared, std::size_t{}, net::SecureSocket{}) } -> std::same_as<Result<void>>;
      { link.wait_connected(deadline) } -> std::same_as<Result<void>>;
      link.wake();
    };

/// First message of the sender on each socket; it is proved together with the secret.
struct SocketHello {
  Nonce nonce;  // from the receiver's handshake
  unsigned long long edge_id;
  WireShape shape;
  std::size_t line;
  std::uint32_t both_ways;  // 1: the socket carries the reverse edge, too
};

/// Calls by which a sender makes its connections.
struct SocketCalls {
  SocketHello hello{};
  net::Secret secret{};
  std::vector<net::Address> addresses{};  // by line
  Result<net::SecureSocket> make(std::size_t line, const net::Deadline& deadline,
                                 const Status* status,
                                 net::Listener listener = net::Listener::may_start) const {
    SocketHello mine = hello;
    mine.line = line;
    return net::auth_connect(addresses[line], secret, std::as_bytes(std::span{&mine, 1}), deadline,
                             status, listener);
  }
};

/// Owner of a connection; when it is destroyed, the tasks end by themselves.
template <class Link>
struct ProxiedBody {
  static_assert(NetworkLink<Link>);
  std::shared_ptr<Link> link = std::make_shared<Link>();
  HostPin pin;              // on a GPU rank; only lanes need it, so it may end before the link
  std::vector<Wire> wires;  // for the lanes
  Nonce nonce{};            // the receiver's
  std::vector<EdgeListener> listeners;  // at which sockets arrive
  bool connected = false;

  ~ProxiedBody() {
    listeners.clear();  // no more sockets arrive
    link->closing.store(true, std::memory_order_release);
    if (link->context.proxy != nullptr) link->wake();
  }

  Error in_context(Error error) const {
    error.rank = link->edge.self.rank;
    if (error.peer < 0) error.peer = link->edge.peer.rank;  // else a third rank is at fault
    error.host = link->edge.self.host;
    error.transport = Link::name;
    return error;
  }

  /// Decides whether connections wait for the first step, and when they close without one.
  Result<void> choose_opening() {
    CCL_TRY(const bool may, setting_flag("RUNTIME_CONNECT"));
    CCL_TRY(const double idle_s, setting_seconds("CONNECTION_IDLE"));
    const bool wanted = setting_given("RUNTIME_CONNECT") || idle_s > 0;
    link->opens_late = may && (wanted || !Link::late_needs_setting);
    link->idle_s = link->opens_late ? idle_s : 0;
    return {};
  }

  Result<void> set_up() {
    TransportContext& context = link->context;
    if (context.proxy == nullptr) {
      return fail(
          Errc::invalid_usage,
          fmt::format("{} needs a proxy engine (the context has none); set one", Link::name));
    }
    link->polled = context.arena != nullptr;
    if (link->polled && Link::may_open_late) CCL_CHECK(choose_opening());
    link->deadline = net::Deadline::after(context.deadline_s).at();
    link->last_look = net::Deadline::after(4 * context.deadline_s).at();
    CCL_CHECK(WireLayout::of(link->edge.shape));  // before memory is allocated for it
    CCL_CHECK(link->prepare());
    CCL_TRY(const auto layout, WireLayout::of(link->edge.shape, link->slots_elsewhere));
    CCL_TRY(link->memory, Mapping::anonymous(layout.bytes()));
    prefer_node(link->memory.base(), layout.bytes(), context.numa);
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
    return Link::receive(link);  // answers from here on, whenever this end's `connect` is called
  }

  /// Handles a socket of the sender, in the network thread.
  static void accept(const std::shared_ptr<Link>& link, const Nonce& nonce, net::Accepted caller) {
    SocketHello hello{};
    if (caller.hello.size() == sizeof hello) {
      std::memcpy(&hello, caller.hello.data(), sizeof hello);
    }
    if (hello.nonce != nonce || hello.edge_id != link->edge.id ||
        hello.line >= link->arriving.size() || hello.both_ways > 1) {
      log_warn(LogPart::net,
               "refused a connection from {} for rank {} (it is for another edge: edge {}, line "
               "{} and direction {}, not edge {}, a line below {} and a direction of 0 or 1)",
               caller.from.to_string(), link->edge.self.rank, hello.edge_id, hello.line,
               hello.both_ways, link->edge.id, link->arriving.size());
      return;
    }
    if (hello.shape != link->edge.shape) {
      if (link->context.status == nullptr) return;
      link->context.status->set(edge_error(link->edge, Link::name, Errc::mismatch,
                                           differing_shapes(link->edge, hello.shape)));
      return;
    }
    net::SecureSocket socket = std::move(caller.socket);
    if (hello.both_ways != 0) link->lend(hello.line, socket);
    if (link->arriving.put(hello.line, socket) && !link->closing.load()) link->wake();
  }

  Result<void> listen() {
    CCL_CHECK(fill_random(&nonce, sizeof nonce));
    CCL_TRY(const auto addresses, link->listeners());
    link->arriving.resize(link->lines());
    const auto accept = [link = link, nonce = nonce](net::Accepted caller) {
      const auto done = completion_of([&] { ProxiedBody::accept(link, nonce, std::move(caller)); });
      if (!done && link->context.status != nullptr) link->context.status->set(done.error());
    };
    listeners.reserve(addresses.size());
    for (const net::Address& where : addresses) {
      CCL_TRY(auto one, EdgeListener::open(where, link->context.secret, nonce, accept));
      listeners.push_back(std::move(one));
    }
    return {};
  }

  Result<void> connect(const Handshake& theirs) {
    if (connected) return {};
    if (link->edge.side == EdgeSide::sender) {
      const auto deadline = net::Deadline::after(link->context.deadline_s);
      CCL_TRY(const SocketCalls calls, read(theirs));
      CCL_CHECK(link->opens_late ? call_late(calls) : call(calls, deadline));
      if (!link->opens_late) CCL_CHECK(link->wait_connected(deadline));
    } else {
      CCL_CHECK(read_sender(theirs));
    }
    connected = true;
    return {};
  }

  /// The sender's handshake. Without its fields it is all zero.
  Result<void> read_sender(const Handshake& theirs) {
    HandshakeCursor cursor;
    const int late = cursor.get<int>(theirs);
    FieldCheck check;
    check.flag("connection at the first step", late);
    if (!check.good()) {
      return fail(Errc::mismatch, fmt::format("the sender's handshake is not one of the {} "
                                              "transport ({})",
                                              Link::name, check.why()));
    }
    link->sender_opens_late = late != 0;
    return {};
  }

  Result<SocketCalls> read(const Handshake& theirs) {
    HandshakeCursor cursor;
    SocketCalls calls;
    SocketHello& hello = calls.hello;
    hello.nonce = cursor.get<Nonce>(theirs);
    hello.edge_id = link->edge.id;
    hello.shape = link->edge.shape;
    const auto count = cursor.get<std::size_t>(theirs);
    std::vector<net::Address> all;
    for (std::size_t d = 0; d < count && d < Link::max_listeners; ++d) {
      all.emplace_back(cursor.get<net::WireAddress>(theirs));
      const net::Address& last = all.back();
      if ((last.family() != AF_INET && last.family() != AF_INET6) || last.port() == 0) {
        all.clear();
        break;
      }
    }
    if (all.empty() || all.size() != count) {
      return fail(Errc::mismatch, fmt::format("the receiver's handshake is not one of the {} "
                                              "transport",
                                              Link::name));
    }
    CCL_CHECK(link->read_fields(theirs, cursor));
    hello.both_ways = link->lines_go_both_ways() ? 1 : 0;
    calls.secret = link->context.secret;
    for (std::size_t n = 0; n < link->lines(); ++n) {
      calls.addresses.push_back(all[link->listener_of(n) % count]);
    }
    return calls;
  }

  Result<void> call(const SocketCalls& calls, const net::Deadline& deadline) {
    for (std::size_t n = 0; n < link->lines(); ++n) {
      if (link->lines_come()) {
        CCL_CHECK(Link::send(link, n, net::SecureSocket{}));
        continue;
      }
      CCL_TRY(auto line, calls.make(n, deadline, link->context.status));
      if (calls.hello.both_ways != 0) link->lend(n, line);
      CCL_CHECK(Link::send(link, n, std::move(line)));
    }
    return {};
  }

  Result<void> call_late(const SocketCalls& calls) {
    const auto make = [calls, limit_s = link->context.deadline_s](std::size_t n,
                                                                  const Status* stop) {
      return calls.make(n, net::Deadline::after(limit_s), stop, net::Listener::has_started);
    };
    link->late_calls = LateCalls::make(link->drivers(), link->lines(), make);
    for (std::size_t n = 0; n < link->lines(); ++n) {
      CCL_CHECK(Link::send(link, n, net::SecureSocket{}));
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
  HandshakeCursor cursor;
  if (body_->link->edge.side == EdgeSide::sender) {
    cursor.put(mine, int(body_->link->opens_late));
    return mine;
  }
  if (body_->listeners.empty()) return mine;
  cursor.put(mine, body_->nonce);
  cursor.put(mine, body_->listeners.size());
  for (const EdgeListener& one : body_->listeners) cursor.put(mine, one.address().wire());
  body_->link->write_fields(mine, cursor);
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
