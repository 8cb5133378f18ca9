#include "bootstrap/ring_formation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "bootstrap/core.hpp"
#include "bootstrap/frame_rules.hpp"
#include "net/greets.hpp"
#include "net/root.hpp"

namespace ccl::detail {

using namespace net;

namespace {
constexpr double last_word_s = 2;  // to send another root the error of this rank
}  // namespace

Result<void> RingFormation::form(std::span<const IdContent> roots) {
  Membership& members = core_.membership();
  const int rank = members.rank, ranks = members.ranks, count = int(roots.size());
  roots_.assign(roots.begin(), roots.end());
  missing_by_root_.resize(roots_.size());
  if (ranks == 1) {
    members.set_members(Engine::get().lock(), {this_member(0, {})});
    return {};
  }
  const int mine = root_of_rank(rank, ranks, count);
  CCL_TRY(const Address where, local_address_towards(Address{roots[size_t(mine)].root}));
  CCL_CHECK(open_acceptor(where));
  CCL_CHECK(join_root(roots[size_t(mine)], mine, count));
  if (count > 1 && rank == first_rank_of_root(mine, ranks, count)) {
    const int before = (mine + count - 1) % count;
    CCL_CHECK(join_root(roots[size_t(before)], before, count));
  }
  CCL_TRY(const Member next, next_from_root());
  CCL_CHECK(form_ring(next));
  return exchange_members();
}

Result<void> RingFormation::open_acceptor(const Address& where) {
  const Lock lock = Engine::get().lock();
  auto& acceptor = core_.sockets().acceptor;
  Membership& members = core_.membership();
  const auto accept = [weak = core_.weak_from_this()](Accepted one) {
    if (const auto core = weak.lock()) core->accept(Engine::get().callback_lock(), std::move(one));
  };
  CCL_TRY(acceptor, Acceptor::open(where, members.secret, accept));
  members.me = this_member(members.rank, acceptor->address().wire());
  return {};
}

Result<void> RingFormation::join_root(const IdContent& id, int root, int roots) {
  if (id.root_rank >= 0) {
    const Lock lock = Engine::get().lock();
    root_rank_ = id.root_rank;
  }
  const Membership& members = core_.membership();
  auto& connected = core_.sockets().roots;
  Status& status = core_.status();
  const Hello hello{HelloKind::join, members.ranks, roots, root, members.me};
  // The root of a unique id listens when the id exists. Without such an id, rank 0 may be late.
  const auto root_is = id.root_rank < 0 ? Listener::has_started : Listener::may_start;
  auto fd = auth_connect(Address{id.root}, id.secret, bytes_of(hello), members.deadline(), &status,
                         root_is);
  if (!fd && !status.ok() && !connected.empty()) {
    // An error from the first root. The second root may receive it from no other rank.
    fd = auth_connect(Address{id.root}, id.secret, bytes_of(hello), Deadline::after(last_word_s),
                      nullptr);
  }
  const Lock lock = Engine::get().lock();
  connected.reserve(connected.size() + 1);
  if (!fd) {
    Error error = std::move(fd).error();
    if (root_is == Listener::has_started && error.code == Errc::peer_lost) {
      error.what = fmt::format(
          "nobody listens at {} any more (its process has ended, or all ranks of this id have "
          "joined already; an id is for one communicator)",
          Address{id.root}.to_string());
    }
    if (root_rank_ < 0) {
      error.what +=
          "; the process that called create_unique_id should be there, rank 0 as a rule; it "
          "has not identified itself yet";
    }
    return members.failed_at(root_rank_, std::move(error));
  }
  CCL_TRY(auto conn, core_.start(lock, std::move(*fd), PeerRole::root, Member{}));
  connected.push_back(std::move(conn));
  return status.result();
}

Result<Member> RingFormation::next_from_root() {
  Lock lock = Engine::get().lock();
  const auto& next = core_.sockets().next_member;
  CCL_CHECK(core_.waits().wait(
      lock, [&] { return next.has_value(); }, "finding the other ranks"));
  return *next;
}

Result<void> RingFormation::form_ring(const Member& next) {
  const Membership& members = core_.membership();
  PeerSockets& sockets = core_.sockets();
  const Hello hello{HelloKind::ring, members.ranks, 0, 0, members.me};
  auto fd = auth_connect(Address{next.listen}, members.secret, bytes_of(hello), members.deadline(),
                         &core_.status());
  Lock lock = Engine::get().lock();
  if (!fd) {
    Error error = std::move(fd).error();
    CCL_CHECK(core_.status().result());  // an error that has arrived meanwhile
    if (error.code != Errc::timed_out) return fail(std::move(error));
    error.what = fmt::format("{} cannot be reached ({})", describe(next), error.what);
    return members.failed_at(next.rank, std::move(error));
  }
  CCL_TRY(auto conn, core_.start(lock, std::move(*fd), PeerRole::next, next));
  sockets.set_next(lock, std::move(conn), next);
  CCL_CHECK(wait_for_prev(lock, "forming the ring"));
  for (const auto& root : sockets.roots) root->send_now(FrameKind::formed, members.rank, 0, {});
  return {};
}

Result<void> RingFormation::wait_for_prev(Lock& lock, const char* what) {
  CCL_CHECK(core_.waits().wait(
      lock, [&] { return bool(core_.sockets().prev); }, what,
      [&] { return std::vector<int>{core_.membership().prev_peer()}; }));
  formed_ = true;
  for (const auto& [header, payload] : std::exchange(early_frames_, {})) {
    core_.gather().on_frame(lock, header, payload);
  }
  return {};
}

Result<void> RingFormation::exchange_members() {
  Membership& own = core_.membership();
  std::vector<Member> members(static_cast<size_t>(own.ranks));
  members[size_t(own.rank)] = own.me;
  CCL_CHECK(
      core_.gather().all_gather(members.data(), sizeof(Member), {}, {"the formation of the ring"}));
  for (int r = 0; r < own.ranks; ++r) CCL_CHECK(own.check_member(r, members[size_t(r)]));
  own.set_members(Engine::get().lock(), std::move(members));
  return {};
}

void RingFormation::set_joined() {
  const Lock lock = Engine::get().lock();
  joined_ = true;
  roots_.clear();  // the next communicator of this job may have the same
}

void RingFormation::wait_for_late_ranks() {
  const auto until = Deadline::after(last_word_s / 2);
  for (;;) {
    {
      const Lock lock = Engine::get().lock();
      const auto waits = [](const IdContent& root) { return local_root_waits(root.secret); };
      if (std::none_of(roots_.begin(), roots_.end(), waits)) return;
    }
    if (until.passed()) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

void RingFormation::on_root_frame(const Lock& lock, const FrameHeader& h, Bytes payload) {
  if (h.kind == FrameKind::release) {
    released_ = true;
  } else if (h.kind == FrameKind::progress) {
    on_progress(lock, h, payload);
  } else {
    Member m;
    if (read_into(m, payload)) core_.sockets().next_member = m;
    core_.waits().count(lock);
    core_.waits().notify(lock);
  }
}

void RingFormation::on_progress(const Lock& lock, const FrameHeader& h, Bytes payload) {
  Progress p;
  if (!read_into(p, payload)) return;
  if (root_rank_ < 0) root_rank_ = p.root_rank;  // what the unique id says comes first
  // Each root reports its own ranks.
  const int count = p.missing_count;
  if (h.tag < missing_by_root_.size()) {
    missing_by_root_[h.tag].assign(p.missing, p.missing + count);
  }
  missing_.clear();
  for (const auto& m : missing_by_root_) missing_.insert(m.begin(), m.end());
  core_.waits().count(lock);
}

std::optional<Error> RingFormation::root_lost(const Lock&, int os_code) const {
  if (released_ || formed_) return {};  // the ring detects lost ranks
  Error e;
  e.code = Errc::peer_lost;
  e.peer = root_rank_;
  e.os_code = os_code;
  if (const char* const why = broken_record(os_code)) {
    e.code = Errc::refused;
    e.what = fmt::format("the connection to the root{} is not what it was ({})",
                         root_rank_ >= 0 ? fmt::format(" of rank {}", root_rank_) : "", why);
    return e;
  }
  e.what = root_rank_ >= 0 ? fmt::format(
                                 "rank {} is gone, and with it the root; see "
                                 "its own output",
                                 root_rank_)
                           : std::string{
                                 "the process that made the unique id is gone before all ranks had "
                                 "joined; keep it alive"};
  return e;
}

std::optional<Error> RingFormation::stopped_root(Lock& lock) const {
  const auto roots = roots_;
  lock.unlock();
  const auto until = Deadline::after(last_word_s);
  const bool stopped = std::any_of(roots.begin(), roots.end(), [&](const IdContent& root) {
    return !greets(Address{root.root}, root.secret, until);
  });
  lock.lock();
  if (!stopped) return {};
  Error e;
  e.code = Errc::timed_out;
  e.peer = root_rank_;
  e.what = root_rank_ >= 0 ? fmt::format(
                                 "rank {}, whose process has the root, does not answer "
                                 "(stopped, or cut off)",
                                 root_rank_)
                           : std::string{
                                 "the process that made the unique id does not answer (stopped, "
                                 "or cut off)"};
  return e;
}

void RingFormation::fail_local_roots(const Lock&, const Error& error) {
  for (const IdContent& root : roots_) fail_local_root(root.secret, error);
}

std::string RingFormation::wrong_early_frame(const Lock&) const {
  if (early_bytes_ <= max_early_bytes) return {};
  return fmt::format("frames of {} MiB for a ring that is not complete", early_bytes_ >> 20);
}

void RingFormation::defer(const Lock&, const FrameHeader& h, Bytes payload) {
  early_bytes_ += sizeof h + payload.size();
  early_frames_.emplace_back(h, std::vector(payload.begin(), payload.end()));
}

// If all ranks have joined a single root, no rank knows more than this one.
Deadline RingFormation::deadline(const Lock&) const {
  const double limit_s = core_.membership().deadline_s;
  const bool all_came = core_.sockets().next_member && missing_by_root_.size() == 1;
  const bool knows = joined_ || all_came || !missing_.empty();
  return Deadline::after(knows ? limit_s : 1.5 * limit_s);
}

}  // namespace ccl::detail
