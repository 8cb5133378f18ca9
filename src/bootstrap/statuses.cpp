#include "bootstrap/core.hpp"

namespace ccl::detail {

using namespace net;

namespace {
constexpr auto status_age = std::chrono::milliseconds{200};  // how old an account may be
constexpr double unresponsive_s = 2;      // in which a rank's network thread answers, or it is stopped
constexpr size_t max_asked = 8;  // besides the neighbours
constexpr double dial_s = 0.2;    // for one rank to answer who asks it directly
}  // namespace

void Bootstrap::Core::set_rank_status(std::function<std::vector<std::byte>(std::string_view)> rank_status) {
  const Lock lock{mutex()};
  publish_status_ = std::move(rank_status);
}

std::vector<std::byte> Bootstrap::Core::own_status() const {
  return publish_status_(rendezvous_);
}

std::vector<std::vector<std::byte>> Bootstrap::Core::rank_statuses(double limit_s) {
  Lock lock{mutex()};
  const auto begin = Clock::now();
  const auto until = Deadline::after(limit_s), dial = Deadline::after(limit_s / 4);
  const bool had_failed = failure_.has_value();
  std::set<int> missing;
  for (int r = 0; r < ranks_; ++r) {
    if (r != rank_) missing.insert(missing.end(), r);
  }
  const auto look = [&] {
    std::erase_if(missing, [&](int r) {
      const auto it = rank_statuses_.find(r);
      return it != rank_statuses_.end() && it->second.at >= begin - status_age;
    });
    return missing.empty() || until.passed() || leaving_ || failure_.has_value() != had_failed;
  };
  publish_status();
  while (!look() && !dial.passed()) changed_.wait_for(lock, std::chrono::milliseconds(10));
  // A stopped rank cuts the ways through it: ask those behind it directly.
  for (int d = 1; d < ranks_ && !look(); ++d) {
    const int peer = (rank_ + d) % ranks_;
    if (missing.contains(peer)) ask(lock, peer);
  }
  while (!look()) changed_.wait_for(lock, std::chrono::milliseconds(10));
  std::vector<std::vector<std::byte>> out(static_cast<size_t>(ranks_));
  for (const auto& [r, rank_status] : rank_statuses_) {
    if (!missing.contains(r)) out[size_t(r)] = rank_status.text;
  }
  if (publish_status_) out[size_t(rank_)] = own_status();
  return out;
}

// Accounts flood: each travels on over every connection when it comes first, and whoever hears
// one gives its own. A rank speaks at most once in `status_age`, however many ask.
void Bootstrap::Core::rank_status(const FrameHeader& h, Bytes payload) {
  if (h.rank < 0 || h.rank >= ranks_ || h.rank == rank_) return;
  RankStatus& known = rank_statuses_[h.rank];
  if (h.tag <= known.number) return;
  known = {Clock::now(), h.tag, std::vector(payload.begin(), payload.end())};
  for_each_conn([&](Conn& c) { c.tell(h.rank, h.tag, payload); });
  publish_status();
  changed_.notify_all();
}

void Bootstrap::Core::publish_status() {
  if (!publish_status_ || Clock::now() - spoke_at_ < status_age) return;
  spoke_at_ = Clock::now();
  const auto text = own_status();
  ++own_statuses_;
  for_each_conn([&](Conn& c) { c.tell(rank_, own_statuses_, text); });
}

void Bootstrap::Core::ask(Lock& lock, int peer) {
  const Member to = members_[size_t(peer)];
  const Hello hello{HelloKind::peer, ranks_, 0, 0, me_};
  lock.unlock();
  auto fd =
      auth_connect(Address{to.listen}, secret_, bytes_of(hello), Deadline::after(dial_s), nullptr);
  lock.lock();
  if (!fd || leaving_) return;
  auto conn = start(std::move(*fd), Role::peer, to);
  if (!conn || !publish_status_) return;
  (*conn)->tell(rank_, ++own_statuses_, own_status());
  dialed_.push_back(std::move(*conn));
}

// Its network thread, whatever its program does.
bool Bootstrap::Core::answers(Lock& lock, const Member& to) {
  const Hello hello{HelloKind::peer, ranks_, 0, 0, me_};
  const ShrinkHello watch{{HelloKind::watch, ranks_, 0, 0, me_}};
  lock.unlock();
  auto fd = auth_connect(Address{to.listen}, secret_, rest_ ? bytes_of(watch) : bytes_of(hello),
                         Deadline::after(unresponsive_s), nullptr, Listener::has_wire);
  lock.lock();
  if (!fd) return fd.error().code != Errc::timed_out;  // one that has ended is no riddle
  if (leaving_) return true;
  if (auto conn = start(std::move(*fd), Role::peer, to)) dialed_.push_back(std::move(*conn));
  return true;
}

// Of the neighbours and those of whom nothing has come, one that is stopped or cut off.
std::optional<Member> Bootstrap::Core::find_unresponsive(Lock& lock, const std::vector<int>& late) {
  std::vector<Member> asked;
  for (const auto& neighbour : {next_member_, prev_member_}) {
    if (neighbour) asked.push_back(*neighbour);
  }
  for (size_t i = 0; i < std::min(late.size(), max_asked) && !members_.empty(); ++i) {
    asked.push_back(members_[size_t(late[i])]);
  }
  std::set<int> answered;
  for (const Member& m : asked) {
    if (failure_ || leaving_) break;
    if (answered.insert(m.rank).second && !answers(lock, m)) return m;
  }
  return {};
}

}  // namespace ccl::detail
