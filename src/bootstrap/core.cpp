#include "bootstrap/core.hpp"

#include <fmt/format.h>

#include <utility>

#include "base/exceptions.hpp"
#include "bootstrap/frame_rules.hpp"

namespace ccl::detail {

using namespace net;

Bootstrap::Core::Core(int rank, int ranks, const Secret& secret, double deadline_s, Status* status)
    : membership_(rank, ranks, secret, deadline_s), shutdown_(*this, status) {}

Bootstrap::Core::Core(const Core& all, std::vector<int> surviving, double deadline_s)
    : membership_(all.membership_, std::move(surviving), deadline_s), shutdown_(*this, nullptr) {}

Result<std::shared_ptr<Conn>> Bootstrap::Core::start(const Lock& lock, SecureSocket socket,
                                                     PeerRole role, const Member& peer) {
  auto conn = Conn::start(
      std::move(socket),
      [weak = weak_from_this(), role, sender = peer.rank](Conn& c, const FrameHeader& h,
                                                          Bytes payload) {
        if (const auto core = weak.lock()) {
          core->take_frame(Engine::get().callback_lock(), c, role, sender, h, payload);
        }
      },
      [weak = weak_from_this(), role, peer](Conn& c, int os_code) {
        if (const auto core = weak.lock()) {
          core->shutdown_.on_closed(Engine::get().callback_lock(), c, role, peer, os_code);
        }
      });
  const auto& failure = shutdown_.failure(lock);
  if (conn && failure) {
    (*conn)->send_now(FrameKind::notice, membership_.rank, 0, bytes_of(to_notice(*failure)));
  }
  if (conn && !shutdown_.is_leaving(lock) && status().any_departed()) {
    for (const int rank : status().departed()) {
      if (rank != peer.rank) (*conn)->send_now(FrameKind::departure, rank, 0, {});
    }
  }
  return conn;
}

void Bootstrap::Core::accept(const Lock& lock, Accepted one) {
  std::shared_ptr<Conn> conn;
  auto done = completion_of([&] { take_caller(lock, std::move(one), conn); });
  if (done) return;
  if (conn) conn->close();
  shutdown_.on_error(lock, std::move(done).error());
}

void Bootstrap::Core::take_caller(const Lock& lock, Accepted one,
                                  std::shared_ptr<Conn>& of_caller) {
  if (!one.differs.empty()) return;  // its rank fails
  if (ShrinkHello stay; read_into(stay, one.hello)) {
    return shrink_.on_hello(lock, std::move(one), stay, of_caller);
  }
  Hello hello;
  const bool whole = read_into(hello, one.hello);
  std::string why = whole ? wrong_hello(membership_, hello) : "its hello is none of a rank";
  if (why.empty() && (hello.kind == HelloKind::stay || hello.kind == HelloKind::watch)) {
    why = "its hello has the purpose of a shrink without the excluded ranks";
  }
  if (why.empty() && hello.kind == HelloKind::ring && sockets_.prev) {
    why = fmt::format("{} has connected already", describe(*sockets_.prev_member));
  }
  if (why.empty() && hello.kind == HelloKind::peer) {
    why = too_many_connections(hello.me, sockets_.count_accepted(lock, hello.me.rank));
  }
  if (!why.empty()) return refuse_hello(std::move(one), describe(membership_.me), why);
  if (hello.kind == HelloKind::ask) return agreement_.on_ask(lock, one);
  const bool ring = hello.kind == HelloKind::ring;
  auto conn =
      start(lock, std::move(one.socket), ring ? PeerRole::prev : PeerRole::caller, hello.me);
  if (!conn) return;
  of_caller = *conn;
  if (shutdown_.failure(lock)) {
    (*conn)->drain();
  } else if (shutdown_.is_leaving(lock)) {
    (*conn)->send_now(FrameKind::goodbye, membership_.rank, 0, {});
    (*conn)->drain();
  } else if (ring) {
    sockets_.set_prev(lock, std::move(*conn), hello.me);
  } else {
    sockets_.in[hello.me.rank] = *conn;
    sockets_.accepted.emplace(hello.me.rank, std::move(*conn));
  }
  waits_.notify(lock);
}

void Bootstrap::Core::take_frame(const Lock& lock, Conn& conn, PeerRole role, int sender,
                                 const FrameHeader& h, Bytes payload) {
  std::string why = wrong_frame(membership_, role, sender, h, payload);
  const bool of_ring = h.kind == FrameKind::part || h.kind == FrameKind::token;
  if (why.empty() && of_ring && !sockets_.has_ring(lock)) why = formation_.wrong_early_frame(lock);
  if (!why.empty()) return conn.reject(std::move(why));
  on_frame(lock, h, payload);
}

void Bootstrap::Core::on_frame(const Lock& lock, const FrameHeader& h, Bytes payload) {
  switch (h.kind) {
    case FrameKind::message:
      messages_.on_message(lock, h, payload);
      break;
    case FrameKind::part:
    case FrameKind::token:
      if (sockets_.has_ring(lock)) {
        gather_.on_frame(lock, h, payload);
      } else {  // a neighbor has completed its ring earlier
        formation_.defer(lock, h, payload);
      }
      break;
    case FrameKind::next:
    case FrameKind::progress:
    case FrameKind::release:
      formation_.on_root_frame(lock, h, payload);
      break;
    case FrameKind::notice: {
      shrink_.raise_attempts(lock, h.tag);
      RootNotice n;
      if (read_into(n, payload)) shutdown_.on_error(lock, to_error(n));
      break;
    }
    case FrameKind::goodbye:
      waits_.notify(lock);
      break;
    case FrameKind::departure:
      shutdown_.on_departure(lock, h.rank);
      break;
    case FrameKind::rank_status:
      statuses_.on_status(lock, h, payload);
      break;
    case FrameKind::formed:
    case FrameKind::receipt:
      break;
  }
}

}  // namespace ccl::detail
