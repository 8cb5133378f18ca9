#include <ccl/comm/log.hpp>

#include <fmt/format.h>

#include "bootstrap/core.hpp"

namespace ccl::detail {

using namespace net;

namespace {
constexpr double goodbye_s = 5;
}  // namespace

void Bootstrap::Core::abort(const Error& error) {
  const Lock lock{mutex()};
  if (failure_ || finalized_) return;
  Error told;
  told.code = Errc::aborted;
  told.peer = rank_;
  told.os_code = error.os_code;
  told.what = fmt::format("{} aborted ({})", describe(me_), error.what);
  const bool judged =
      error.code == Errc::timed_out || error.code == Errc::mismatch || error.code == Errc::overflow;
  if (judged && error.peer >= 0) {  // who is at fault is known
    told = error;
    told.what += fmt::format(" [found by rank {}]", rank_);
    if (error.code == Errc::overflow) told.peer = rank_;  // the other of the two may be listening
  }
  broadcast_error(told);
  release_waiters(error);
}

Error Bootstrap::Core::give_up(Error error) {
  const Lock lock{mutex()};
  complete(error);
  if (!failure_) {
    broadcast_error(error);
    release_waiters(error);
  }
  return error;
}

Result<void> Bootstrap::Core::finalize(std::optional<double> limit_s) {
  if (finalized_) return {};
  if (ranks_ > 1) CCL_CHECK(barrier(limit_s, "CCL_TIMEOUT", "finalize"));
  Lock lock{mutex()};
  CCL_CHECK(usable());
  leaving_ = true;
  for_each_conn([&](Conn& c) { c.send_now(FrameKind::goodbye, rank_, 0, {}); });
  // Whoever leaves first waits for nobody else than its neighbours, who are past the barrier too.
  const auto on_message = [](const auto& c) { return !c || c->said_goodbye() || !c->is_open(); };
  const auto until = Deadline::after(goodbye_s);
  while (!(on_message(next_) && on_message(prev_)) && !until.passed() && !failure_) {
    changed_.wait_for(lock, std::chrono::milliseconds(50));
  }
  close_all();
  finalized_ = true;
  return {};
}

void Bootstrap::Core::close_gracefully() {
  const Lock lock{mutex()};
  if (failure_) return;
  leaving_ = true;
  for_each_conn([&](Conn& c) { c.send_now(FrameKind::goodbye, rank_, 0, {}); });
  close_all();
  finalized_ = true;
}

void Bootstrap::Core::leave() {
  const Lock lock{mutex()};
  if (finalized_) return;
  if (!failure_ && ranks_ > 1) {
    Error e;
    e.code = Errc::aborted;
    e.peer = rank_;
    e.what =
        fmt::format("{} left without finalize (it gave up or was destroyed early)", describe(me_));
    broadcast_error(e);
  }
  leaving_ = true;
  publish_status_ = {};
  close_all();
  finalized_ = true;
}

void Bootstrap::Core::closed(Conn& conn, Role role, const Member& peer, int os_code) {
  changed_.notify_all();
  if (failure_ || leaving_ || conn.said_goodbye()) return;
  // It may have given up before it knew that it was let in. That a rank has died, the ring tells.
  if (role == Role::caller && !conn.said_anything()) return;
  if (role == Role::root) {
    if (released_ || formed_) return;  // from here on the ring watches
    Error e;
    e.code = Errc::peer_lost;
    e.peer = root_rank_;
    e.os_code = os_code;
    e.what = root_rank_ >= 0
                 ? fmt::format(
                       "rank {} is gone, and with it the root of the ranks' meeting; see "
                       "its own output",
                       root_rank_)
                 : std::string{
                       "the process that made the unique id is gone before all ranks had "
                       "joined; keep it alive"};
    return on_error(std::move(e));
  }
  on_error(lost_error(peer, os_code));
}

// Tells everybody once, then this rank: who acts on the status and exits must have told first.
void Bootstrap::Core::on_error(Error error) {
  if (failure_ || leaving_) return;
  broadcast_error(error);
  release_waiters(std::move(error));
}

void Bootstrap::Core::broadcast_error(const Error& error) {
  const RootNotice notice = to_notice(error);
  for_each_conn([&](Conn& c) { c.send_now(FrameKind::notice, rank_, 0, bytes_of(notice)); });
  // Not through its connection: this process may end before its root reads that.
  for (const Secret& secret : root_secrets_) fail_local_root(secret, error);
}

void Bootstrap::Core::release_waiters(Error error) {
  complete(error);
  const LogRank in_log{rank_};
  log_info(LogPart::bootstrap, "{}", error.message());
  failure_ = error;
  if (const auto child = forming_child_.lock()) child->on_error(child->from_parent(error));
  status_->set(std::move(error));
  changed_.notify_all();
}

}  // namespace ccl::detail
