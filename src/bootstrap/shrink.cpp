#include <ccl/comm/log.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/report_text.hpp"
#include "bootstrap/core.hpp"
#include "net/auth.hpp"
#include "net/sha256.hpp"
#include "net/socket.hpp"
#include <sys/socket.h>

// The ring of all ranks has holes where ranks have died. Those who stay form another one: each
// calls the gate of the next that stays, which it knows since creation and which is open as long as
// the bootstrap lives, failed or not. Who is called before it shrinks itself keeps the connection
// until then. Over that ring the new bootstrap is made as in a split.

namespace ccl::detail {

using namespace net;

namespace {
constexpr double ask_s = 2;     // for one rank to say whether it has passed
constexpr double differ_s = 2;  // in which news of a shrink that was given up comes around

std::string say(const std::vector<int>& excluded) {
  return excluded.empty() ? "no rank" : detail::say_ranks(excluded);
}
}  // namespace

Result<std::vector<int>> surviving_ranks(int rank, int ranks, std::span<const int> excluded) {
  std::vector<int> stay(static_cast<size_t>(ranks));
  std::iota(stay.begin(), stay.end(), 0);
  for (const int r : excluded) {
    if (r == rank) {
      return fail(Errc::invalid_argument,
                  fmt::format("rank {} excludes itself (those who stay call shrink, the others do "
                              "not); exclude others only",
                              r));
    }
    if (r < 0 || r >= ranks) {
      return fail(
          Errc::invalid_argument,
          fmt::format("there is no rank {} to exclude (ranks are 0 to {}); exclude those of "
                      "the communicator that shrinks",
                      r, ranks - 1));
    }
    std::erase(stay, r);
  }
  return stay;
}

Result<std::unique_ptr<Bootstrap>> Bootstrap::shrink(std::span<const int> excluded,
                                                     const Options& options) {
  CCL_TRY(const double deadline_s, deadline_of(options));
  CCL_TRY(auto stay, surviving_ranks(rank(), ranks(), excluded));
  if (stay.size() == 1) {
    Secret secret;
    fill_random(secret);
    auto alone = std::make_shared<Core>(0, 1, secret, deadline_s, options.status);
    alone->set_members({this_member(0, {})});
    return std::unique_ptr<Bootstrap>{new Bootstrap(std::move(alone))};
  }
  const std::lock_guard turn{core_->shrinking()};
  Bootstrap rest{std::make_shared<Core>(*core_, std::move(stay), deadline_s)};
  const auto make = [&]() -> Result<std::unique_ptr<Bootstrap>> {
    CCL_CHECK(rest.core_->form_ring_in(*core_));
    return rest.make_child(0, 0, options, {}, "shrink", true);
  };
  auto made = make();
  if (!made) {
    made = fail(rest.core_->give_up(std::move(made).error()));
    core_->end_shrink(fail(made.error()));
    return made;
  }
  core_->end_shrink({});
  rest.core_->close_gracefully();  // all know that the child is there, which hears what happens now
  return made;
}

// Where a rank dies in the last barrier, some may have passed it and others not. Who has not asks
// all others, and goes by any that has. Who is asked before it has passed does not pass by itself
// any more, but asks, too: so all that are left end alike.
bool Bootstrap::Core::is_made(bool formed) {
  {
    const Lock lock{mutex()};
    if (formed && !doubted_) return made_ = true;
    doubted_ = true;
  }
  const Hello hello{HelloKind::ask, ranks_, 0, 0, me_};
  bool made = false;
  for (int d = 1; d < ranks_ && !made; ++d) {
    const Member& other = members_[size_t((rank_ + d) % ranks_)];
    const auto until = Deadline::after(ask_s);
    const auto fd = auth_connect(Address{other.listen}, secret_, bytes_of(hello), until, nullptr,
                                 Listener::has_wire);
    char yes = 0;
    made = fd && recv_all(fd->get(), &yes, sizeof yes, until, nullptr) && yes != 0;
  }
  const Lock lock{mutex()};
  return made_ = made;
}

// Who has passed where the others have not hears their reason a moment later than their answers.
Result<void> Bootstrap::Core::unmade(Result<void> passed) {
  if (!passed) return passed;
  Lock lock{mutex()};
  changed_.wait_for(lock, std::chrono::duration<double>(ask_s), [&] { return !status_->ok(); });
  CCL_CHECK(status_->result());
  return failed(Errc::timed_out,
                "the other ranks gave up when the new communicator was nearly there (see their "
                "errors); call shrink again");
}

void Bootstrap::Core::answer(Accepted one) {
  if (!made_) doubted_ = true;
  const char yes = made_ ? 1 : 0;
  ::send(one.fd.get(), &yes, sizeof yes, MSG_NOSIGNAL | MSG_DONTWAIT);
}

bool Bootstrap::Core::PendingPeer::failed() const {
  const auto is_notice = [](const auto& f) { return f.first.kind == FrameKind::notice; };
  return closed || std::any_of(frames.begin(), frames.end(), is_notice);
}

Result<std::shared_ptr<Conn>> Bootstrap::Core::call(int peer, Role role, Bytes hello) {
  const Member to = members_[size_t(peer)];
  auto fd = auth_connect(Address{to.listen}, secret_, hello, Deadline::after(deadline_s_), status_,
                         Listener::has_wire);
  const Lock lock{mutex()};
  if (!fd) {
    CCL_CHECK(status_->result());  // heard from the others meanwhile
    Error error = std::move(fd).error();
    error.what =
        fmt::format("{} cannot be reached ({}); exclude it, too", describe(to), error.what);
    error.peer = peer;
    return fail(std::move(error));
  }
  return start(std::move(*fd), role, to);
}

Result<void> Bootstrap::Core::form_ring_in(Core& all) {
  ShrinkHello hello{{HelloKind::stay, ranks_, 0, 0, me_}};
  {
    const Lock lock{mutex()};
    missing_ = {prev_peer()};  // until it has called
    all.begin_shrink(shared_from_this());
    CCL_CHECK(status_->result());  // before anybody has counted on this rank
    hello.excluded = all.shrink_.excluded;
    hello.number = all.shrink_.number;
    all.shrink_.said.copy(hello.said, sizeof hello.said - 1);
  }
  CCL_TRY(auto next, call(next_peer(), Role::next, bytes_of(hello)));
  {
    const Lock lock{mutex()};
    next_member_ = members_[size_t(next_peer())];
    next_ = std::move(next);
  }
  // Who dies before it has called would only be missed.
  hello.hello.kind = HelloKind::watch;
  CCL_TRY(const auto watched, call(prev_peer(), Role::prev, bytes_of(hello)));
  Lock lock{mutex()};
  auto formed = wait_for_prev(lock, "shrink, which all ranks that stay call");
  watched->close();  // the ring sees it from here on
  return formed;
}

void Bootstrap::Core::begin_shrink(const std::shared_ptr<Core>& rest) {
  std::vector<int> excluded;
  for (const int r : ring_) {
    if (rest->position_of(r) < 0) excluded.push_back(r);
  }
  shrink_ = {rest, hmac_sha256(secret_, std::as_bytes(std::span{excluded})), say(excluded),
             Clock::now(), tries_};
  const auto early = callers_.find(rest->prev_peer());
  if (early != callers_.end() && early->second.from->excluded == shrink_.excluded) {
    const PendingPeer& prev = *early->second.from;
    if (prev.failed() && prev.number < tries_) {
      early->second.conn->close();  // as this rank did, too
      callers_.erase(early);
    } else {
      shrink_.number = std::max(shrink_.number, prev.number);
    }
  }
  take_prev();
  // Without it, who differs is only missed.
  (void)Engine::get().add_ticker([weak = weak_from_this(), of = std::weak_ptr{rest}] {
    const auto self = weak.lock();
    return self && self->look_at_callers(of);
  });
}

void Bootstrap::Core::end_shrink(const Result<void>& result) {
  const Lock lock{mutex()};
  const Shrinking ended = std::exchange(shrink_, {});
  if (result) {
    given_up_.erase(ended.excluded);
    return;
  }
  given_up_[ended.excluded] = {result.error(), ended.number};
  tries_ = std::max(ended.number + 1, ended.rest->tries_);
  std::erase_if(callers_, [this](const auto& of) { return tell_given_up(of.second); });
  std::erase_if(watchers_, [this](const Call& of) { return tell_given_up(of); });
}

void Bootstrap::Core::stop_shrink(const Error& error) {
  std::shared_ptr<Core> rest;
  {
    const Lock lock{mutex()};
    rest = shrink_.rest;
  }
  if (rest) rest->abort(error);
}

void Bootstrap::Core::accept_stay(Accepted one, const ShrinkHello& hello) {
  const Member& who = hello.hello.me;
  const bool watches = hello.hello.kind == HelloKind::watch;
  if ((!watches && hello.hello.kind != HelloKind::stay) || hello.hello.ranks != ranks_ ||
      position_of(who.rank) < 0 || who.rank == rank_) {
    log_warn(LogPart::bootstrap, "refused a connection from {} (it fits no rank of this job)",
             one.from.to_string());
    return;
  }
  auto from = std::make_shared<PendingPeer>();
  from->who = who;
  from->excluded = hello.excluded;
  from->said.assign(hello.said, strnlen(hello.said, sizeof hello.said));
  from->number = hello.number;
  from->at = Clock::now();
  auto conn = Conn::start(
      std::move(one.fd),
      [from](Conn&, const FrameHeader& h, Bytes payload) {
        if (const auto rest = from->taken_by.lock()) return rest->frame(h, payload);
        from->frames.emplace_back(h, std::vector(payload.begin(), payload.end()));
      },
      [from](Conn& c, int os_code) {
        if (const auto rest = from->taken_by.lock()) {
          return rest->closed(c, Role::prev, from->who, os_code);
        }
        from->closed = os_code;
      });
  if (!conn) return;
  const Call call{std::move(from), *std::move(conn)};
  if (tell_given_up(call)) return;
  if (watches) {
    std::erase_if(watchers_, [](const Call& of) { return !of.conn->is_open(); });
    watchers_.push_back(call);
    return;
  }
  Call& latest = callers_[who.rank];
  if (latest.conn) latest.conn->close();
  latest = call;
  if (shrink_.rest) take_prev();
}

// One that waited in vain for this rank has left the reason.
void Bootstrap::Core::take_prev() {
  Core& rest = *shrink_.rest;
  const auto it = callers_.find(rest.prev_peer());
  if (it == callers_.end() || rest.prev_ || rest.failure_) return;
  const Call call = it->second;
  PendingPeer& prev = *call.from;
  if (prev.excluded != shrink_.excluded) return;
  // It may have given up the try that this rank is in, and news of that be on its way.
  if (prev.number > shrink_.number && !is_old(prev)) return;
  callers_.erase(it);
  prev.taken_by = shrink_.rest;
  rest.prev_ = call.conn;
  rest.prev_member_ = prev.who;
  rest.missing_.clear();
  for (const auto& [h, payload] : std::exchange(prev.frames, {})) rest.frame(h, payload);
  if (prev.closed) rest.closed(*call.conn, Role::prev, prev.who, *prev.closed);
  rest.changed_.notify_all();
}

bool Bootstrap::Core::is_old(const PendingPeer& from) const {
  const auto since = std::max(from.at, shrink_.since);
  return Clock::now() - since >= std::chrono::duration<double>(differ_s);
}

// Who is in a try that has failed here already.
bool Bootstrap::Core::tell_given_up(const Call& call) {
  const auto it = given_up_.find(call.from->excluded);
  if (it == given_up_.end() || call.from->number > it->second.number) return false;
  call.conn->send_now(FrameKind::notice, rank_, tries_, bytes_of(to_notice(it->second.why)));
  call.conn->drain();
  return true;
}

// Who stays here and excludes other ranks, unless it only is ahead of the news that it gave up.
bool Bootstrap::Core::look_at_callers(const std::weak_ptr<Core>& of) {
  const auto rest = of.lock();
  if (!rest || shrink_.rest != rest || rest->failure_) return false;
  take_prev();
  for (auto& [rank, call] : callers_) {
    const PendingPeer& from = *call.from;
    if (from.excluded == shrink_.excluded || from.failed() || rest->position_of(rank) < 0 ||
        !is_old(from)) {
      continue;
    }
    rest->differ(rank, fmt::format("rank {} excludes {} where rank {} excludes {} (all ranks that "
                                   "stay must exclude the same)",
                                   rank, from.said, rank_, shrink_.said));
    call.conn->send_now(FrameKind::notice, rank_, 0, bytes_of(to_notice(*rest->failure_)));
    call.conn->drain();
    callers_.erase(rank);
    return false;
  }
  return true;
}

void Bootstrap::Core::reject_pending() {
  Error left;
  left.code = Errc::peer_lost;
  left.peer = rank_;
  left.what = fmt::format("{} has left the communicator (it dropped or finalized it); exclude it",
                          describe(me_));
  const auto reject = [&](Conn& conn) {
    conn.send_now(FrameKind::notice, rank_, 0, bytes_of(to_notice(left)));
    conn.drain();
  };
  for (const auto& call : std::exchange(watchers_, {})) reject(*call.conn);
  for (const auto& [rank, call] : std::exchange(callers_, {})) reject(*call.conn);
}

}  // namespace ccl::detail
