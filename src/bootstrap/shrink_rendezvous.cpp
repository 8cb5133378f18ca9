#include "bootstrap/shrink_rendezvous.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/exceptions.hpp"
#include "base/field_check.hpp"
#include "base/report_text.hpp"
#include "bootstrap/core.hpp"
#include "bootstrap/frame_rules.hpp"
#include "net/message_rules.hpp"

namespace ccl::detail {

using namespace net;

namespace {

constexpr double differ_s = 2;  // in which the error of an abandoned shrink reaches all ranks

std::string say(const std::vector<int>& excluded) {
  return excluded.empty() ? "no rank" : detail::say_ranks(excluded);
}

}  // namespace

bool ShrinkRendezvous::PendingPeer::failed() const {
  const auto is_notice = [](const auto& f) { return f.first.kind == FrameKind::notice; };
  return closed || std::any_of(frames.begin(), frames.end(), is_notice);
}

Result<std::shared_ptr<Conn>> ShrinkRendezvous::connect(int peer, PeerRole role, Bytes hello) {
  const Membership& members = core_.membership();
  const Member to = members.members[size_t(peer)];
  auto fd = auth_connect(Address{to.listen}, members.secret, hello, members.deadline(),
                         &core_.status(), Listener::has_started);
  const Lock lock = Engine::get().lock();
  if (!fd) {
    CCL_CHECK(core_.status().result());  // an error that has arrived meanwhile
    Error error = std::move(fd).error();
    error.what =
        fmt::format("{} cannot be reached ({}); exclude it, too", describe(to), error.what);
    error.peer = peer;
    return fail(std::move(error));
  }
  CCL_TRY(auto conn, core_.start(lock, std::move(*fd), role, to));
  // Under the lock of the start: an error that comes between the two would not reach the peer.
  if (role == PeerRole::next) core_.sockets().set_next(lock, conn, to);
  return conn;
}

Result<void> ShrinkRendezvous::form_ring_in(Bootstrap::Core& all) {
  const Membership& members = core_.membership();
  const int next = members.next_peer(), prev = members.prev_peer();
  ShrinkHello hello{{HelloKind::stay, members.ranks, 0, 0, members.me}};
  {
    const Lock lock = Engine::get().lock();
    core_.formation().expect(lock, prev);
    ShrinkRendezvous& shrink = all.shrink();
    shrink.begin(lock, core_.shared_from_this());
    CCL_CHECK(core_.status().result());  // earlier than another rank relies on this one
    hello.excluded = shrink.current_.excluded;
    hello.number = shrink.current_.number;
    shrink.current_.excluded_text.copy(hello.excluded_text, sizeof hello.excluded_text - 1);
  }
  CCL_CHECK(connect(next, PeerRole::next, bytes_of(hello)));
  // Without this connection, a previous rank that dies now is only missing.
  hello.hello.kind = HelloKind::watch;
  CCL_TRY(const auto watched, connect(prev, PeerRole::prev, bytes_of(hello)));
  Lock lock = Engine::get().lock();
  auto formed = core_.formation().wait_for_prev(lock, "shrink, which all ranks that stay call");
  watched->close();  // the ring detects its death from here on
  return formed;
}

void ShrinkRendezvous::begin(const Lock& lock, const std::shared_ptr<Bootstrap::Core>& rest) {
  const Membership& members = core_.membership();
  std::vector<int> excluded;
  for (const int r : members.ring) {
    if (rest->membership().position_of(r) < 0) excluded.push_back(r);
  }
  current_ = {rest, hmac_sha256(members.secret, std::as_bytes(std::span{excluded})), say(excluded),
              Clock::now(), attempts_};
  const auto early = pending_.find(rest->membership().prev_peer());
  if (early != pending_.end() && early->second.from->excluded == current_.excluded) {
    const PendingPeer& prev = *early->second.from;
    if (prev.failed() && prev.number < attempts_) {
      early->second.conn->close();  // this rank has abandoned that attempt, too
      pending_.erase(early);
    } else {
      current_.number = std::max(current_.number, prev.number);
    }
  }
  take_prev(lock);
  // If this fails, a rank that excludes other ranks is only missing.
  (void)Engine::get().add_ticker([weak = core_.weak_from_this(), of = std::weak_ptr{rest}] {
    const auto core = weak.lock();
    return core && core->shrink().check_pending(Engine::get().callback_lock(), of);
  });
}

void ShrinkRendezvous::end(const Result<void>& result) {
  const Lock lock = Engine::get().lock();
  if (!current_.rest) return;  // an exception came before its begin
  const Current ended = std::exchange(current_, {});
  if (result) {
    abandoned_.erase(ended.excluded);
    return;
  }
  abandoned_[ended.excluded] = {result.error(), ended.number};
  attempts_ = std::max(ended.number + 1, ended.rest->shrink().attempts_);
  std::erase_if(pending_, [&](const auto& of) { return send_abandoned(lock, of.second); });
  std::erase_if(watchers_, [&](const PendingCall& of) { return send_abandoned(lock, of); });
}

void ShrinkRendezvous::stop(const Error& error) {
  std::shared_ptr<Bootstrap::Core> rest;
  {
    const Lock lock = Engine::get().lock();
    rest = current_.rest;
  }
  if (rest) rest->shutdown().abort(error);
}

// This rank may have no memory, so a connection that cannot carry the error is closed.
void ShrinkRendezvous::miss(Errc why, std::uint64_t number) noexcept {
  const Lock lock = Engine::get().lock();
  if (current_.rest || attempts_ > number) return;
  missed_ = {brief_error(why, core_.membership().rank), attempts_++};
  const auto ends = [&](const PendingCall& call) {
    bool sent = false;
    if (!completes([&] { sent = send_abandoned(lock, call); })) call.conn->close();
    return sent || !call.conn->is_open();
  };
  std::erase_if(pending_, [&](const auto& of) { return ends(of.second); });
  std::erase_if(watchers_, ends);
}

void ShrinkRendezvous::on_hello(const Lock& lock, Accepted one, const ShrinkHello& hello,
                                std::shared_ptr<Conn>& of_caller) {
  const Membership& members = core_.membership();
  const int rank = hello.hello.me.rank;
  const bool watches = hello.hello.kind == HelloKind::watch;
  std::string why = FieldCheck{}
                        .part("shrink", wrong_shrink(hello))
                        .part("shrink", wrong_hello(members, hello.hello))
                        .require(members.position_of(rank) >= 0, "it is not in the ring")
                        .why();
  if (why.empty() && watches) {
    std::erase_if(watchers_, [](const PendingCall& of) { return !of.conn->is_open(); });
    const auto is_of_rank = [rank](const PendingCall& of) { return of.from->who.rank == rank; };
    const auto open = std::count_if(watchers_.begin(), watchers_.end(), is_of_rank);
    why = too_many_connections(hello.hello.me, std::size_t(open));
  }
  if (!why.empty()) return refuse_hello(std::move(one), describe(members.me), why);
  const auto call = keep(lock, std::move(one), hello);
  if (!call) return;
  of_caller = call->conn;
  if (send_abandoned(lock, *call)) return;
  if (watches) {
    watchers_.push_back(*call);
    return;
  }
  PendingCall& latest = pending_[rank];
  if (latest.conn) latest.conn->close();
  latest = *call;
  if (current_.rest) take_prev(lock);
}

// Frames go to the core that has taken the connection, or wait for it.
Result<ShrinkRendezvous::PendingCall> ShrinkRendezvous::keep(const Lock&, Accepted one,
                                                             const ShrinkHello& hello) {
  auto from = std::make_shared<PendingPeer>();
  from->who = hello.hello.me;
  from->excluded = hello.excluded;
  from->excluded_text.assign(hello.excluded_text,
                             strnlen(hello.excluded_text, sizeof hello.excluded_text));
  from->number = hello.number;
  from->at = Clock::now();
  CCL_TRY(
      auto conn,
      Conn::start(
          std::move(one.socket),
          [from](Conn& c, const FrameHeader& h, Bytes payload) {
            if (const auto rest = from->taken_by.lock()) {
              return rest->take_frame(Engine::get().callback_lock(), c, PeerRole::prev,
                                      from->who.rank, h, payload);
            }
            if (from->bytes > max_early_bytes) {
              from->frames.clear();
              return c.reject(fmt::format(
                  "frames of {} MiB for a shrink that this rank has not begun", from->bytes >> 20));
            }
            from->frames.emplace_back(h, std::vector(payload.begin(), payload.end()));
            from->bytes += sizeof h + payload.size();
          },
          [from](Conn& c, int os_code) {
            if (const auto rest = from->taken_by.lock()) {
              return rest->shutdown().on_closed(Engine::get().callback_lock(), c, PeerRole::prev,
                                                from->who, os_code);
            }
            from->closed = os_code;
          }));
  return PendingCall{std::move(from), std::move(conn)};
}

// A previous rank that waited for this one until its deadline has left a notice in its frames.
void ShrinkRendezvous::take_prev(const Lock& lock) {
  Bootstrap::Core& rest = *current_.rest;
  const auto it = pending_.find(rest.membership().prev_peer());
  if (it == pending_.end() || rest.sockets().prev || rest.shutdown().failure(lock)) return;
  const PendingCall call = it->second;
  PendingPeer& prev = *call.from;
  if (prev.excluded != current_.excluded) return;
  // It may have abandoned this rank's attempt, with the notice still to arrive.
  if (prev.number > current_.number && !is_old(lock, prev)) return;
  pending_.erase(it);
  prev.taken_by = current_.rest;
  rest.sockets().set_prev(lock, call.conn, prev.who);
  rest.formation().expect_none(lock);
  for (const auto& [h, payload] : std::exchange(prev.frames, {})) {
    rest.take_frame(lock, *call.conn, PeerRole::prev, prev.who.rank, h, payload);
  }
  if (prev.closed) {
    rest.shutdown().on_closed(lock, *call.conn, PeerRole::prev, prev.who, *prev.closed);
  }
  rest.waits().notify(lock);
}

bool ShrinkRendezvous::is_old(const Lock&, const PendingPeer& from) const {
  const auto since = std::max(from.at, current_.since);
  return Clock::now() - since >= std::chrono::duration<double>(differ_s);
}

// Returns the attempt of `from` that has failed here, or null.
const ShrinkRendezvous::AbandonedShrink* ShrinkRendezvous::abandoned(
    const PendingPeer& from) const {
  if (missed_ && from.number <= missed_->number) return &*missed_;
  const auto it = abandoned_.find(from.excluded);
  return it == abandoned_.end() || from.number > it->second.number ? nullptr : &it->second;
}

// Sends the error of an attempt that has failed here. Returns false if the attempt has not failed.
bool ShrinkRendezvous::send_abandoned(const Lock&, const PendingCall& call) {
  const AbandonedShrink* const failed = abandoned(*call.from);
  if (failed == nullptr) return false;
  call.conn->send_now(FrameKind::notice, core_.membership().rank, attempts_,
                      bytes_of(to_notice(failed->why)));
  call.conn->drain();
  return true;
}

// Fails the shrink if a surviving rank excludes other ranks. A recent call may be of an attempt
// that its rank has abandoned, so it waits. Returns false when the shrink has ended.
bool ShrinkRendezvous::check_pending(const Lock& lock, const std::weak_ptr<Bootstrap::Core>& of) {
  const auto rest = of.lock();
  if (!rest || current_.rest != rest || rest->shutdown().failure(lock)) return false;
  take_prev(lock);
  const int own = core_.membership().rank;
  for (auto& [rank, call] : pending_) {
    const PendingPeer& from = *call.from;
    if (from.excluded == current_.excluded || from.failed() ||
        rest->membership().position_of(rank) < 0 || !is_old(lock, from)) {
      continue;
    }
    rest->shutdown().on_mismatch(
        lock, rank,
        fmt::format("rank {} excludes {} where rank {} excludes {} (all ranks that "
                    "stay must exclude the same)",
                    rank, from.excluded_text, own, current_.excluded_text));
    call.conn->send_now(FrameKind::notice, own, 0,
                        bytes_of(to_notice(*rest->shutdown().failure(lock))));
    call.conn->drain();
    pending_.erase(rank);
    return false;
  }
  return true;
}

void ShrinkRendezvous::raise_attempts(const Lock&, std::uint64_t attempts) {
  attempts_ = std::max(attempts_, attempts);
}

void ShrinkRendezvous::reject_pending(const Lock&) {
  const Membership& members = core_.membership();
  Error left;
  left.code = Errc::peer_lost;
  left.peer = members.rank;
  left.what = fmt::format("{} has left the communicator (it dropped or finalized it); exclude it",
                          describe(members.me));
  const auto reject = [&](Conn& conn) {
    conn.send_now(FrameKind::notice, members.rank, 0, bytes_of(to_notice(left)));
    conn.drain();
  };
  for (const auto& call : std::exchange(watchers_, {})) reject(*call.conn);
  for (const auto& [rank, call] : std::exchange(pending_, {})) reject(*call.conn);
}

}  // namespace ccl::detail
