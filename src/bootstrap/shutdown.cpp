#include "bootstrap/shutdown.hpp"

#include <ccl/comm/log.hpp>

#include <fmt/format.h>

#include "base/exceptions.hpp"
#include "bootstrap/core.hpp"
#include "net/message_rules.hpp"
#include "net/root.hpp"

namespace ccl::detail {

using namespace net;

namespace {
constexpr double goodbye_s = 5;  // limit of the wait for the neighbors' goodbyes, or their closes
}  // namespace

Result<void> Shutdown::usable(const Lock&) const {
  CCL_CHECK(status_->result());
  if (finalized_ || leaving_) {
    return core_.membership().failed(
        Errc::invalid_usage, "the bootstrap was used after finalize (create a new communicator)");
  }
  return {};
}

void Shutdown::cut(const Lock& lock, Errc code, int peer) noexcept {
  const Error brief = brief_error(code, peer);
  if (!failure_) failure_ = brief;
  (void)completes([&] { core_.formation().fail_local_roots(lock, brief); });
  close_connections(lock);
  status_->set(brief);
  core_.waits().notify(lock);
}

void Shutdown::close_connections(const Lock& lock) noexcept {
  (void)completes([&] { core_.sockets().for_each(lock, [](Conn& c) { c.close(); }); });
  if (core_.sockets().acceptor) core_.sockets().acceptor->close();
}

/// Error that the other ranks get of `why`.
Error Shutdown::aborted(const Error& why) const {
  const Membership& members = core_.membership();
  Error reported;
  reported.code = Errc::aborted;
  reported.peer = members.rank;
  reported.os_code = why.os_code;
  reported.what = fmt::format("{} aborted ({})", describe(members.me), why.what);
  const bool judged = why.code == Errc::timed_out || why.code == Errc::mismatch ||
                      why.code == Errc::overflow || why.code == Errc::not_a_number;
  if (judged && why.peer >= 0) {  // the error names the rank at fault
    reported = why;
    reported.what += fmt::format(" [found by rank {}]", members.rank);
    if (why.code == Errc::overflow) reported.peer = members.rank;  // the peer receives this, too
  }
  return reported;
}

void Shutdown::abort(const Error& error) noexcept {
  const Lock lock = Engine::get().lock();
  if (failure_ || finalized_) return;
  const auto report = [&] {
    broadcast_error(lock, aborted(error));
    release_waiters(lock, error);
  };
  if (!completes(report)) cut(lock, error.code, error.peer);
}

Error Shutdown::give_up(Error error) noexcept {
  const Lock lock = Engine::get().lock();
  const auto report = [&] {
    core_.membership().complete(error);
    if (failure_) return;
    broadcast_error(lock, error);
    release_waiters(lock, error);
  };
  if (!completes(report)) cut(lock, error.code, error.peer);
  return error;
}

Result<void> Shutdown::finalize(std::optional<double> limit_s, const std::function<void()>& drain) {
  if (finalized_) return {};
  if (core_.membership().ranks > 1) CCL_CHECK(core_.gather().barrier_of_end(limit_s));
  Lock lock = Engine::get().lock();
  CCL_CHECK(usable(lock));
  if (status_->any_departed()) {  // not all ranks can meet, so this one departs, too
    lock.unlock();
    if (drain) drain();
    lock.lock();
    CCL_CHECK(usable(lock));
    depart(lock);
    const auto until = Deadline::after(goodbye_s);
    while (is_draining(lock) && !until.passed()) {
      core_.waits().sleep(lock, std::chrono::milliseconds(5));
    }
    return {};
  }
  leaving_ = true;
  send_goodbyes(lock);
  const auto until = Deadline::after(goodbye_s);
  // A rank waits only for its neighbors, which have passed the barrier, too.
  const PeerSockets& sockets = core_.sockets();
  const auto has_left = [](const auto& c) { return !c || c->received_goodbye() || !c->is_open(); };
  while (!(has_left(sockets.next) && has_left(sockets.prev)) && !until.passed() && !failure_) {
    core_.waits().sleep(lock, std::chrono::milliseconds(50));
  }
  close_all(lock);
  finalized_ = true;
  return {};
}

void Shutdown::close_gracefully() {
  const Lock lock = Engine::get().lock();
  if (failure_) return;
  leaving_ = true;
  send_goodbyes(lock);
  close_all(lock);
  finalized_ = true;
}

void Shutdown::depart(const Lock& lock) noexcept {
  if (failure_ || leaving_ || finalized_) return;
  if (core_.membership().ranks > 1 && !core_.sockets().has_ring(lock)) return;
  status_->set_leaving();
  const auto say = [&] {
    send_departure(lock, core_.membership().rank);
    send_goodbyes(lock);
    close_all(lock);
  };
  leaving_ = true;
  if (!completes(say)) {
    core_.statuses().stop(lock);
    close_connections(lock);
  }
  finalized_ = true;
  core_.waits().notify(lock);
}

bool Shutdown::is_draining(const Lock& lock) const {
  bool any = false;
  core_.sockets().for_each(lock, [&](const Conn& c) { any = any || c.is_draining(); });
  return any;
}

void Shutdown::lose_departed(const Lock& lock, int rank) noexcept {
  const auto& members = core_.membership().members;
  if (rank < 0 || std::size_t(rank) >= members.size()) return;
  if (completes([&] { on_error(lock, departed_error(members[std::size_t(rank)])); })) return;
  cut(lock, Errc::peer_lost, rank);
}

void Shutdown::on_departure(const Lock& lock, int rank) {
  if (failure_ || leaving_ || !status_->set_departed(rank)) return;
  const LogRank in_log{core_.membership().rank};
  log_info(LogPart::bootstrap, "the process of rank {} exits without ending its communicator",
           rank);
  send_departure(lock, rank);
  core_.waits().count(lock);
  core_.waits().notify(lock);
}

void Shutdown::leave() noexcept {
  const Lock lock = Engine::get().lock();
  if (finalized_) return;
  if (!completes([&] { leave_now(lock); })) {
    leaving_ = true;
    core_.statuses().stop(lock);
    close_connections(lock);
  }
  finalized_ = true;
}

void Shutdown::leave_now(const Lock& lock) {
  const Membership& members = core_.membership();
  if (!failure_ && members.ranks > 1) {
    Error e;
    e.code = Errc::aborted;
    e.peer = members.rank;
    e.what = fmt::format("{} left without finalize (it gave up or was destroyed early)",
                         describe(members.me));
    broadcast_error(lock, e);
  }
  leaving_ = true;
  close_all(lock);
}

void Shutdown::on_closed(const Lock& lock, const Conn& conn, PeerRole role, const Member& peer,
                         int os_code) noexcept {
  core_.waits().notify(lock);
  if (failure_ || leaving_) return;
  if (completes([&] { end_peer(lock, conn, role, peer, os_code); })) return;
  cut(lock, Errc::out_of_memory, peer.rank);
}

void Shutdown::end_peer(const Lock& lock, const Conn& conn, PeerRole role, const Member& peer,
                        int os_code) {
  if (!conn.fault().empty()) {
    const bool root = role == PeerRole::root;
    return on_error(lock, protocol_error(root ? "the root" : describe(peer), peer.rank,
                                         describe(core_.membership().me), conn.fault()));
  }
  if (conn.received_goodbye() || status_->has_departed(peer.rank)) return;
  // A caller may have given up before it knew that it was accepted. The ring detects dead ranks.
  if (role == PeerRole::caller && !conn.received_frame() && broken_record(os_code) == nullptr)
    return;
  if (role == PeerRole::root) {
    auto error = core_.formation().root_lost(lock, os_code);
    if (error) on_error(lock, *std::move(error));
    return;
  }
  on_error(lock, lost_error(peer, os_code));
}

void Shutdown::on_error(const Lock& lock, Error error) noexcept {
  if (failure_ || leaving_) return;
  const auto report = [&] {
    broadcast_error(lock, error);
    release_waiters(lock, error);
  };
  if (!completes(report)) cut(lock, error.code, error.peer);
}

void Shutdown::on_mismatch(const Lock& lock, int owner, std::string what) {
  Error e;
  e.code = Errc::mismatch;
  e.peer = owner;
  e.what = std::move(what);
  broadcast_error(lock, e);
  release_waiters(lock, std::move(e));
}

void Shutdown::set_forming_child(const std::shared_ptr<Bootstrap::Core>& child) {
  const Lock lock = Engine::get().lock();
  forming_child_ = child;
  if (child && failure_) fail_child(lock, *child, *failure_);
}

void Shutdown::fail_child(const Lock& lock, Bootstrap::Core& child, const Error& error) {
  child.shutdown().on_error(lock, child.membership().from_parent(error));
}

void Shutdown::broadcast_error(const Lock& lock, const Error& error) {
  const RootNotice notice = to_notice(error);
  core_.sockets().for_each(lock, [&](Conn& c) {
    c.send_now(FrameKind::notice, core_.membership().rank, 0, bytes_of(notice));
  });
  // A local root gets the error directly, because this process may end before the root reads it.
  core_.formation().fail_local_roots(lock, error);
}

void Shutdown::release_waiters(const Lock& lock, Error error) {
  core_.membership().complete(error);
  const LogRank in_log{core_.membership().rank};
  log_info(LogPart::bootstrap, "{}", error.message());
  failure_ = error;
  if (const auto child = forming_child_.lock()) fail_child(lock, *child, error);
  status_->set(std::move(error));
  core_.waits().notify(lock);
}

void Shutdown::send_goodbyes(const Lock& lock) {
  core_.sockets().for_each(
      lock, [&](Conn& c) { c.send_now(FrameKind::goodbye, core_.membership().rank, 0, {}); });
}

void Shutdown::send_departure(const Lock& lock, int rank) {
  core_.sockets().for_each(lock, [&](Conn& c) { c.send_now(FrameKind::departure, rank, 0, {}); });
}

// The source of statuses may be destroyed now, and readers of statuses may outlive it.
void Shutdown::close_all(const Lock& lock) {
  core_.statuses().stop(lock);
  core_.sockets().for_each(lock, [](Conn& c) { c.drain(); });
  core_.shrink().reject_pending(lock);
  if (core_.sockets().acceptor) core_.sockets().acceptor->close();
}

}  // namespace ccl::detail
