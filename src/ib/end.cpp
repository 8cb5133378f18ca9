#include <ccl/log.hpp>
#include <ccl/proxy.hpp>
#include <ccl/transport/ib.hpp>

#include <fmt/format.h>

#include <cstring>
#include <thread>

#include "gpu/host_pin.hpp"
#include "gpu/memory.hpp"
#include "ib/link.hpp"
#include "transport/proof.hpp"
#include <net/auth.hpp>
#include <net/engine.hpp>

namespace ccl {
namespace detail {
namespace {

/// What the sender says on its line; the secret is proved along with it.
struct Hello {
  Nonce nonce;  // from the receiver's handshake
  unsigned long long edge_id;
  WireShape shape;
};

constexpr Index most_slot_bytes = (Index{1} << 32) - 128;  // sizes travel in an immediate's 32 bits

}  // namespace

/// What the owner of a connection holds: when it goes, the task ends by itself.
struct IbEnd {
  std::shared_ptr<IbLink> link = std::make_shared<IbLink>();
  HostPin pin;              // on a GPU rank; only lanes need it
  std::vector<Wire> wires;  // as the lanes see them
  Nonce nonce{};            // the receiver's
  std::shared_ptr<net::Gate> gate;
  bool connected = false;

  ~IbEnd() {
    if (gate) {
      const std::lock_guard lock{net::Engine::get().mutex()};
      gate->close();
    }
    link->closing.store(true, std::memory_order_release);
    if (link->context.proxy != nullptr) link->context.proxy->wake();
  }

  Error in_context(Error error) const {
    error.rank = link->edge.self.rank;
    error.peer = link->edge.peer.rank;
    error.host = link->edge.self.host;
    error.transport = IbTransport::name;
    return error;
  }

  Result<void> set_up() {
    const WireShape& shape = link->edge.shape;
    CCL_TRY(const auto layout, WireLayout::of(shape));
    if (shape.slot_bytes > most_slot_bytes) {
      return fail(Errc::invalid_argument, fmt::format("slots of {} bytes are too large for ib (at "
                                                      "most {}); use smaller ones",
                                                      shape.slot_bytes, most_slot_bytes));
    }
    CCL_TRY(link->tuning, IbTuning::from_settings());
    CCL_TRY(link->memory, Mapping::anonymous(layout.bytes()));
    CCL_TRY(link->board, Mapping::anonymous(std::size_t(shape.channels) *
                                            std::size_t(shape.slot_count) * sizeof(IbSlot)));
    link->wires = wires = layout.wires(link->memory.base(), link->edge.side, true);
    TransportContext& context = link->context;
    if (context.arena != nullptr) {
      CCL_TRY(pin, HostPin::make(context.arena->gpu(), link->memory.base(), layout.bytes()));
      wires = layout.wires(pin.on_device(), link->edge.side, true);
      link->polled = true;
    }
    link->deadline = net::Deadline::after(context.deadline_s).at();
    if (link->edge.side == Side::sender) return {};
    CCL_CHECK(listen());
    // From here on it answers, whenever our `connect` comes.
    return context.proxy->add(make_ib_receiver(link));
  }

  Result<void> listen() {
    CCL_CHECK(fill_random(&nonce, sizeof nonce));
    CCL_TRY(const net::Address where, net::local_address());
    const auto accept = [link = link, nonce = nonce](net::Accepted caller) {
      Hello hello{};
      if (caller.hello.size() == sizeof hello) {
        std::memcpy(&hello, caller.hello.data(), sizeof hello);
      }
      if (hello.nonce != nonce || hello.edge_id != link->edge.id) {
        log_warn(LogPart::net, "refused a connection from {} for rank {} (it is for another edge)",
                 caller.from.to_string(), link->edge.self.rank);
        return;
      }
      if (hello.shape != link->edge.shape) {
        if (link->context.status == nullptr) return;
        link->context.status->set(edge_error(
            link->edge, IbTransport::name, Errc::mismatch,
            fmt::format("the ends of edge {} do not match (the sender made {} channels of {} slots "
                        "of {} bytes)",
                        link->edge.id, hello.shape.channels, hello.shape.slot_count,
                        hello.shape.slot_bytes)));
        return;
      }
      int none = -1;
      if (link->arriving.compare_exchange_strong(none, caller.fd.get())) {
        (void)caller.fd.release();
        if (!link->closing.load()) link->context.proxy->wake();
      }
    };
    const std::lock_guard lock{net::Engine::get().mutex()};
    CCL_TRY(gate, net::Gate::open(where, link->context.secret, accept));
    return {};
  }

  Result<void> connect(const Handshake& theirs) {
    HandshakeCursor cursor;
    Hello hello{};
    hello.nonce = cursor.get<Nonce>(theirs);
    const net::Address where{cursor.get<net::WireAddress>(theirs)};
    if (where.family() != AF_INET && where.family() != AF_INET6) {
      return fail(Errc::mismatch, "the receiver's handshake is not one of the ib transport");
    }
    hello.edge_id = link->edge.id;
    hello.shape = link->edge.shape;
    const auto deadline = net::Deadline::after(link->context.deadline_s);
    CCL_TRY(net::Fd line,
            net::auth_connect(where, link->context.secret, std::as_bytes(std::span{&hello, 1}),
                              deadline, link->context.status));
    CCL_CHECK(link->context.proxy->add(make_ib_sender(link, Fd{line.release()})));
    while (link->state() == IbLink::State::connecting) {
      if (link->context.status != nullptr) CCL_CHECK(link->context.status->result());
      if (deadline.passed()) {
        return fail(Errc::timed_out,
                    fmt::format("rank {} on {} does not answer (its process is stopped?); start "
                                "all ranks, or raise the deadline",
                                link->edge.peer.rank, link->edge.peer.host));
      }
      if (!link->context.proxy->help()) std::this_thread::sleep_for(std::chrono::microseconds{100});
    }
    if (link->state() == IbLink::State::failed) return fail(link->error());
    return {};
  }
};

}  // namespace detail

Result<IbTransport::End> IbTransport::setup(TransportContext& context, const Edge& edge) {
  if (context.proxy == nullptr) {
    return fail(detail::edge_error(edge, name, Errc::invalid_usage,
                                   "ib needs a proxy engine (the context has none); set one"));
  }
  End end;
  end.end_ = std::make_shared<detail::IbEnd>();
  end.end_->link->context = context;
  end.end_->link->edge = edge;
  if (auto done = end.end_->set_up(); !done) {
    return fail(end.end_->in_context(std::move(done).error()));
  }
  return end;
}

Handshake IbTransport::End::handshake() const {
  Handshake mine{};
  if (!end_->gate) return mine;
  detail::HandshakeCursor cursor;
  cursor.put(mine, end_->nonce);
  cursor.put(mine, end_->gate->address().wire());
  return mine;
}

Result<Connection> IbTransport::End::connect(const Handshake& theirs) {
  if (end_->link->edge.side == Side::sender && !end_->connected) {
    if (auto done = end_->connect(theirs); !done) {
      return fail(end_->in_context(std::move(done).error()));
    }
  }
  end_->connected = true;
  Connection connection;
  connection.wires = end_->wires;
  connection.owner = end_;
  connection.transport = name;
  return connection;
}

}  // namespace ccl
