#include <ccl/comm/log.hpp>
#include <ccl/detail/runtime/settings.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "bootstrap/core.hpp"

namespace ccl::detail {

using namespace net;

namespace {
constexpr double last_word_s = 2;  // to tell another root why this rank ends
}  // namespace

Result<void> Bootstrap::Core::open_gate(const Address& where) {
  const Lock lock{mutex()};
  CCL_TRY(gate_, Acceptor::open(where, secret_, [weak = weak_from_this()](Accepted one) {
            if (const auto self = weak.lock()) self->accept(std::move(one));
          }));
  me_ = this_member(rank_, gate_->address().wire());
  return {};
}

Result<void> Bootstrap::Core::join_root(const IdContent& id, int root, int roots) {
  if (id.root_rank >= 0) {
    const Lock lock{mutex()};
    root_rank_ = id.root_rank;
  }
  const Hello hello{HelloKind::join, ranks_, roots, root, me_};
  // Who made a unique id listened first; where the ranks work it out, rank 0 may be late.
  const auto root_is = id.root_rank < 0 ? Listener::has_wire : Listener::may_come;
  auto fd =
      auth_connect(Address{id.root}, id.secret, bytes_of(hello), deadline(), status_, root_is);
  if (!fd && !status_->ok() && !roots_.empty()) {
    // What this rank has heard from its first root, the second one may learn from nobody else.
    fd = auth_connect(Address{id.root}, id.secret, bytes_of(hello), Deadline::after(last_word_s),
                      nullptr);
  }
  Lock lock{mutex()};
  if (!fd) {
    Error error = std::move(fd).error();
    if (root_rank_ < 0) {
      error.what +=
          "; the process that called create_unique_id should be there, rank 0 as a rule, and has "
          "told nothing of itself yet";
    }
    return failed_at(root_rank_, std::move(error));
  }
  CCL_TRY(auto conn, start(std::move(*fd), Role::root, Member{}));
  roots_.push_back(std::move(conn));
  return status_->result();
}

Result<Member> Bootstrap::Core::next_from_root() {
  Lock lock{mutex()};
  CCL_CHECK(wait(
      lock, [&] { return next_member_.has_value(); }, "finding the other ranks"));
  return *next_member_;
}

Result<void> Bootstrap::Core::form_ring(const Member& next) {
  const Hello hello{HelloKind::ring, ranks_, 0, 0, me_};
  auto fd = auth_connect(Address{next.listen}, secret_, bytes_of(hello), deadline(), status_);
  Lock lock{mutex()};
  if (!fd) {
    Error error = std::move(fd).error();
    CCL_CHECK(status_->result());  // heard from the others meanwhile
    if (error.code != Errc::timed_out) return fail(std::move(error));
    error.what = fmt::format("{} cannot be reached ({})", describe(next), error.what);
    return failed_at(next.rank, std::move(error));
  }
  CCL_TRY(next_, start(std::move(*fd), Role::next, next));
  next_member_ = next;
  CCL_CHECK(wait_for_prev(lock, "forming the ring"));
  for (const auto& root : roots_) root->send_now(FrameKind::formed, rank_, 0, {});
  return {};
}

Result<void> Bootstrap::Core::wait_for_prev(Lock& lock, const char* what) {
  CCL_CHECK(wait(
      lock, [&] { return bool(prev_); }, what));
  formed_ = true;
  for (const auto& [header, payload] : std::exchange(early_frames_, {})) {
    header.kind == FrameKind::part ? part(header, payload) : token(header, payload);
  }
  return {};
}

Result<void> Bootstrap::Core::exchange_members() {
  std::vector<Member> members(static_cast<size_t>(ranks_));
  members[size_t(rank_)] = me_;
  CCL_CHECK(all_gather(members.data(), sizeof(Member), {}, {"the meeting of all ranks"}));
  set_members(std::move(members));
  return {};
}

void Bootstrap::Core::set_root_secrets(std::vector<Secret> secrets) {
  root_secrets_ = std::move(secrets);
  missing_by_root_.resize(root_secrets_.size());
}

void Bootstrap::Core::wait_for_late_ranks() {
  const auto until = Deadline::after(last_word_s / 2);
  for (;;) {
    {
      const Lock lock{mutex()};
      const auto waits = [](const Secret& s) { return local_root_waits(s); };
      if (std::none_of(root_secrets_.begin(), root_secrets_.end(), waits)) return;
    }
    if (until.passed()) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

void Bootstrap::Core::set_members(std::vector<Member> members) {
  const Lock lock{mutex()};
  members_ = std::move(members);
  for (const Member& m : members_) {
    places_.push_back({m.rank, m.pid, m.host_hash, std::string(m.host, strnlen(m.host, 40))});
  }
}

Result<double> deadline_of(const BootstrapOptions& options) {
  if (options.deadline_s > 0) return options.deadline_s;
  CCL_TRY(const double s, setting_seconds("INIT_TIMEOUT"));
  return s == 0 ? 1e8 : s;
}

Result<std::unique_ptr<Bootstrap>> Bootstrap::join(std::span<const UniqueId> ids, int rank,
                                                   int ranks, const Options& options) {
  const LogRank in_log{rank};
  CCL_CHECK(check_settings());
  if (ranks < 1 || rank < 0 || rank >= ranks) {
    return fail(Errc::invalid_argument,
                fmt::format("rank {} of {} makes no sense (0 <= rank < ranks)", rank, ranks));
  }
  if (ranks > 1 && (ids.empty() || Index(ids.size()) > ranks)) {
    return fail(Errc::invalid_argument,
                fmt::format("{} ids for {} ranks (at least one id, at most one per rank)",
                            ids.size(), ranks));
  }
  CCL_TRY(const double deadline_s, deadline_of(options));
  std::vector<IdContent> roots;
  if (ranks == 1) {  // meets nobody
    roots.emplace_back();
    fill_random(roots[0].secret);
  } else {
    for (const UniqueId& id : ids) {
      CCL_TRY(const IdContent content, unpack(id));
      roots.push_back(content);
    }
  }
  // One secret for all, that of the first id: every rank has it.
  auto core = std::make_shared<Core>(rank, ranks, roots[0].secret, deadline_s, options.status);
  std::unique_ptr<Bootstrap> out{new Bootstrap(core)};
  std::vector<Secret> root_secrets;
  for (const IdContent& root : roots) root_secrets.push_back(root.secret);
  core->set_root_secrets(std::move(root_secrets));
  const auto form = [&]() -> Result<void> {
    if (ranks == 1) {
      core->set_members({this_member(0, {})});
      return {};
    }
    const int count = int(roots.size());
    const int mine = root_of_rank(rank, ranks, count);
    CCL_TRY(const Address where, local_address_towards(Address{roots[size_t(mine)].root}));
    CCL_CHECK(core->open_gate(where));
    CCL_CHECK(core->join_root(roots[size_t(mine)], mine, count));
    if (count > 1 && rank == first_rank_of_root(mine, ranks, count)) {
      const int before = (mine + count - 1) % count;
      CCL_CHECK(core->join_root(roots[size_t(before)], before, count));
    }
    CCL_TRY(const Member next, core->next_from_root());
    CCL_CHECK(core->form_ring(next));
    return core->exchange_members();
  };
  if (const auto formed = form(); !formed) {
    Error error = core->give_up(formed.error());
    core->wait_for_late_ranks();
    return fail(std::move(error));
  }
  core->set_joined();
  log_info(LogPart::bootstrap, "{} of {} has joined", describe(core->me()), ranks);
  return out;
}

}  // namespace ccl::detail
