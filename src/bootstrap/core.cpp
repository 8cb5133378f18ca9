#include <ccl/detail/runtime/host_id.hpp>
#include <ccl/comm/log.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "bootstrap/core.hpp"

namespace ccl::detail {

using namespace net;

Bootstrap::Core::Core(int rank, int ranks, const Secret& secret, double deadline_s, Status* status)
    : rank_(rank),
      ranks_(ranks),
      secret_(secret),
      deadline_s_(deadline_s),
      status_(status == nullptr ? &own_status_ : status),
      ring_(static_cast<size_t>(ranks)) {
  std::iota(ring_.begin(), ring_.end(), 0);
}

Bootstrap::Core::Core(const Core& all, std::vector<int> stay, double deadline_s)
    : rank_(all.rank_),
      ranks_(all.ranks_),
      secret_(all.secret_),
      deadline_s_(deadline_s),
      status_(&own_status_),
      me_(all.me_),
      members_(all.members_),
      places_(all.places_),
      ring_(std::move(stay)),
      rest_(true) {}

int Bootstrap::Core::position_of(int rank) const {
  const auto at = std::lower_bound(ring_.begin(), ring_.end(), rank);
  return at == ring_.end() || *at != rank ? -1 : int(at - ring_.begin());
}

Address Bootstrap::Core::listening_at() const {
  Address a{me_.listen};
  a.set_port(0);
  return a;
}

void Bootstrap::Core::set_joined() {
  const Lock lock{mutex()};
  joined_ = true;
  root_secrets_.clear();  // the next communicator of this job may have the same
}

void Bootstrap::Core::set_forming_child(const std::shared_ptr<Core>& child) {
  const Lock lock{mutex()};
  forming_child_ = child;
  if (child && failure_) child->on_error(child->from_parent(*failure_));
}

void Bootstrap::Core::set_ranks_in_parent(std::vector<int> ranks) {
  const Lock lock{mutex()};
  ranks_in_parent_ = std::move(ranks);
}

Error Bootstrap::Core::from_parent(Error error) const {
  const auto& there = ranks_in_parent_;
  const auto at = std::find(there.begin(), there.end(), error.peer);
  const int peer = at == there.end() ? -1 : int(at - there.begin());
  if (peer != error.peer) error.what += "; ranks are those of the parent";
  error.peer = peer;
  return error;
}

Error Bootstrap::Core::in_parent(const Core& parent, Error error) const {
  if (auto well = parent.status_->result(); !well) return std::move(well).error();
  const auto peer = size_t(error.peer);  // huge, if there is none
  if (peer < ranks_in_parent_.size() && ranks_in_parent_[peer] != error.peer) {
    error.peer = ranks_in_parent_[peer];
    error.what += fmt::format("; rank {} is rank {} of the parent", peer, error.peer);
  }
  return error;
}

Result<void> Bootstrap::Core::failed(Errc code, std::string what) const {
  Error e;
  e.code = code;
  e.what = std::move(what);
  complete(e);
  return fail(std::move(e));
}

Result<void> Bootstrap::Core::failed_at(int peer, Error e) const {
  e.peer = peer;
  complete(e);
  return fail(std::move(e));
}

void Bootstrap::Core::complete(Error& e) const {
  if (e.rank < 0) e.rank = rank_;
  if (e.host.empty()) e.host = host_name();
}

Result<void> Bootstrap::Core::usable() const {
  CCL_CHECK(status_->result());
  if (finalized_ || leaving_) {
    return failed(Errc::invalid_usage,
                  "the bootstrap was used after finalize (create a new communicator)");
  }
  return {};
}

Result<std::shared_ptr<Conn>> Bootstrap::Core::start(Fd fd, Role role, const Member& peer) {
  auto conn = Conn::start(
      std::move(fd),
      [weak = weak_from_this()](Conn&, const FrameHeader& h, Bytes payload) {
        if (const auto self = weak.lock()) self->frame(h, payload);
      },
      [weak = weak_from_this(), role, peer](Conn& c, int os_code) {
        if (const auto self = weak.lock()) self->closed(c, role, peer, os_code);
      });
  if (conn && failure_) {  // the other end has not heard yet
    (*conn)->send_now(FrameKind::notice, rank_, 0, bytes_of(to_notice(*failure_)));
  }
  return conn;
}

void Bootstrap::Core::accept(Accepted one) {
  if (ShrinkHello stay; read_into(stay, one.hello)) return accept_stay(std::move(one), stay);
  Hello hello;
  if (!read_into(hello, one.hello) || hello.kind == HelloKind::join || hello.ranks != ranks_ ||
      hello.me.rank < 0 || hello.me.rank >= ranks_ ||
      (hello.kind == HelloKind::ring && hello.me.rank != prev_peer())) {
    log_warn(LogPart::bootstrap, "refused a connection from {} (it fits no rank of this job)",
             one.from.to_string());
    return;
  }
  if (hello.kind == HelloKind::ask) return answer(std::move(one));
  const bool ring = hello.kind == HelloKind::ring;
  auto conn = start(std::move(one.fd), ring ? Role::prev : Role::caller, hello.me);
  if (!conn) return;
  if (failure_) {
    (*conn)->drain();
  } else if (leaving_) {
    (*conn)->send_now(FrameKind::goodbye, rank_, 0, {});
    (*conn)->drain();
  } else if (ring) {
    prev_ = std::move(*conn);
    prev_member_ = hello.me;
  } else {
    in_[hello.me.rank] = *conn;
    accepted_.push_back(std::move(*conn));
  }
  changed_.notify_all();
}

void Bootstrap::Core::frame(const FrameHeader& h, Bytes payload) {
  switch (h.kind) {
    case FrameKind::message:
      inbox_[{h.rank, h.tag}].emplace_back(payload.begin(), payload.end());
      changed_.notify_all();
      break;
    case FrameKind::part:
    case FrameKind::token:
      if (!next_ || !prev_) {  // a neighbour is ahead of us
        early_frames_.emplace_back(h, std::vector(payload.begin(), payload.end()));
      } else {
        h.kind == FrameKind::part ? part(h, payload) : token(h, payload);
      }
      break;
    case FrameKind::next: {
      Member m;
      if (read_into(m, payload)) next_member_ = m;
      ++progress_;
      changed_.notify_all();
      break;
    }
    case FrameKind::progress: {
      Progress p;
      if (!read_into(p, payload)) break;
      if (p.root_rank >= 0) root_rank_ = p.root_rank;
      // Another root knows about other ranks.
      const int count = std::clamp(p.missing_count, 0, 8);
      if (h.tag < missing_by_root_.size()) {
        missing_by_root_[h.tag].assign(p.missing, p.missing + count);
      }
      missing_.clear();
      for (const auto& m : missing_by_root_) missing_.insert(m.begin(), m.end());
      ++progress_;
      break;
    }
    case FrameKind::release:
      released_ = true;
      break;
    case FrameKind::notice: {
      tries_ = std::max(tries_, h.tag);  // of who is ahead of this rank
      RootNotice n;
      if (read_into(n, payload)) on_error(to_error(n));
      break;
    }
    case FrameKind::goodbye:
      changed_.notify_all();
      break;
    case FrameKind::rank_status:
      rank_status(h, payload);
      break;
    case FrameKind::formed:
    case FrameKind::heard:
      break;
  }
}

void Bootstrap::Core::for_each_conn(const std::function<void(Conn&)>& f) {
  for (const auto& c : {next_, prev_}) {
    if (c) f(*c);
  }
  for (const auto& c : roots_) f(*c);
  for (const auto& c : accepted_) f(*c);
  for (const auto& c : dialed_) f(*c);
  for (const auto& [peer, c] : out_) {
    if (c && c != next_ && c != prev_ &&
        std::find(accepted_.begin(), accepted_.end(), c) == accepted_.end()) {
      f(*c);
    }
  }
}

void Bootstrap::Core::close_all() {
  for_each_conn([](Conn& c) { c.drain(); });
  reject_pending();
  if (gate_) gate_->close();
}

namespace {

std::string say_late(const std::vector<int>& late, const char* setting) {
  if (late.empty()) return fmt::format("somebody is late; {} sets the limit", setting);
  std::string list;
  for (size_t i = 0; i < std::min<size_t>(late.size(), 8); ++i) list += fmt::format(" {}", late[i]);
  return fmt::format("nothing from rank{}{}{}; start them, or raise {}", late.size() > 1 ? "s" : "",
                     list, late.size() >= 8 ? " ..." : "", setting);
}

}  // namespace

Result<void> Bootstrap::Core::wait(Lock& lock, const std::function<bool()>& done, const char* what,
                                   const std::function<std::vector<int>()>& missing,
                                   std::optional<double> limit_s, const char* setting) {
  // While ranks meet, those who know who is missing shall be the first to say so. Nobody knows more
  // where all have come to the only root.
  const bool endless = limit_s && *limit_s == 0;
  const double max_s = limit_s.value_or(deadline_s_);
  const auto deadline = [&] {
    if (limit_s) return Deadline::after(max_s);
    const bool all_came = next_member_ && missing_by_root_.size() == 1;
    const bool knows = joined_ || all_came || !missing_.empty();
    return Deadline::after(knows ? deadline_s_ : 1.5 * deadline_s_);
  };
  auto until = deadline();
  auto seen = progress_;
  for (;;) {
    CCL_CHECK(status_->result());
    if (done()) return {};
    CCL_CHECK(usable());
    if (seen != progress_) {
      seen = progress_;
      until = deadline();
    }
    if (!endless && until.passed()) {
      std::vector<int> late(missing_.begin(), missing_.end());
      if (late.empty() && missing) late = missing();
      Error e;
      e.code = Errc::timed_out;
      if (!limit_s && prev_ && next_) {  // a creation: who is late may wait for one that is stopped
        const auto stopped = find_unresponsive(lock, late);
        // Others may be nearer to it, and find it within the same time.
        if (!stopped && ranks_ > 3) {
          changed_.wait_for(lock, std::chrono::seconds(3),
                            [&] { return !status_->ok() || done() || seen != progress_; });
        }
        CCL_CHECK(status_->result());
        if (done()) return {};
        if (seen != progress_) continue;  // merely slow
        if (stopped) {
          e.peer = stopped->rank;
          e.what =
              fmt::format("{} does not answer (stopped, or cut off): no progress for {} s in {}",
                          describe(*stopped), max_s, what);
          complete(e);
          return fail(std::move(e));
        }
      }
      e.peer = late.empty() ? -1 : late.front();
      e.what = fmt::format("no progress for {} s in {} ({})", max_s, what,
                           say_late(late, limit_s ? setting : "CCL_INIT_TIMEOUT"));
      complete(e);
      return fail(std::move(e));
    }
    changed_.wait_for(lock, std::chrono::milliseconds(50));
  }
}

}  // namespace ccl::detail
