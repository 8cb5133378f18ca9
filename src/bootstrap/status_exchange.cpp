#include "bootstrap/status_exchange.hpp"

#include <algorithm>
#include <set>

#include "bootstrap/core.hpp"

namespace ccl::detail {

using namespace net;

namespace {
constexpr auto status_age = std::chrono::milliseconds{200};  // maximum age of a status
constexpr double unresponsive_s = 2;  // a network thread that takes longer to answer is stopped
constexpr size_t max_asked = 8;       // late ranks, besides the neighbors
constexpr int max_all_asked = 16;     // ranks of a job in which each rank asks all others
constexpr double dial_s = 0.2;        // for one rank to answer a direct request
}  // namespace

void StatusExchange::set_source(Source source) {
  const Lock lock = Engine::get().lock();
  source_ = std::move(source);
}

void StatusExchange::set_listener(StatusListener listener) {
  const Lock lock = Engine::get().lock();
  listener_ = std::move(listener);
}

std::vector<std::byte> StatusExchange::own_status(const Lock& lock) const {
  return source_(core_.gather().current_call(lock));
}

std::vector<std::vector<std::byte>> StatusExchange::rank_statuses(double limit_s) {
  Lock lock = Engine::get().lock();
  const int rank = core_.membership().rank, ranks = core_.membership().ranks;
  const Shutdown& shutdown = core_.shutdown();
  std::vector<std::vector<std::byte>> out(static_cast<size_t>(ranks));
  if (shutdown.is_leaving(lock)) return out;  // ranks that leave say nothing of each other
  const auto begin = Clock::now();
  const auto until = Deadline::after(limit_s), dial = Deadline::after(limit_s / 4);
  const bool had_failed = shutdown.failure(lock).has_value();
  const auto fails = [&] { return shutdown.failure(lock).has_value() != had_failed; };
  std::set<int> missing;
  for (int r = 0; r < ranks; ++r) {
    if (r != rank && !core_.status().has_departed(r)) missing.insert(missing.end(), r);
  }
  const auto look = [&] {
    std::erase_if(missing, [&](int r) {
      const auto it = received_.find(r);
      return it != received_.end() && it->second.at >= begin - status_age;
    });
    return missing.empty() || until.passed() || shutdown.is_leaving(lock) || fails();
  };
  const auto pause = [&] { core_.waits().sleep(lock, std::chrono::milliseconds(10)); };
  publish_status(lock);
  while (!look() && !dial.passed()) pause();
  // A stopped rank forwards nothing, so this rank asks the ranks behind it directly: one of each
  // host first, because each that does not answer takes time, and those of a host are often stopped
  // or cut off together.
  std::set<int> asked;
  std::set<std::uint64_t> hosts;
  for (const bool one_of_each : {true, false}) {
    for (int d = 1; d < ranks && !look(); ++d) {
      const int peer = (rank + d) % ranks;
      if (!missing.contains(peer) || asked.contains(peer)) continue;
      const auto host = core_.membership().members[size_t(peer)].host_hash;
      if (one_of_each && !hosts.insert(host).second) continue;
      asked.insert(peer);
      ask(lock, peer);
    }
  }
  while (!look()) pause();
  if (shutdown.is_leaving(lock)) return out;
  // A failure cuts the wait short, so a rank that is missing may be well.
  if (fails() && !missing.empty() && !until.passed()) return out;
  for (const auto& [r, status] : received_) {
    const bool is_old = core_.status().has_departed(r);
    if (!missing.contains(r) && !is_old) out[size_t(r)] = status.text;
  }
  if (source_) out[size_t(rank)] = own_status(lock);
  return out;
}

// Statuses flood the sockets: a rank forwards each new one over every connection and then publishes
// its own. It publishes at most once in `status_age`, however many ranks ask.
void StatusExchange::on_status(const Lock& lock, const FrameHeader& h, Bytes payload) {
  const Membership& members = core_.membership();
  if (h.rank < 0 || h.rank >= members.ranks || h.rank == members.rank) return;
  Received& known = received_[h.rank];
  if (h.tag <= known.number) return;
  known = {Clock::now(), h.tag, std::vector(payload.begin(), payload.end())};
  core_.sockets().for_each(lock, [&](Conn& c) { c.send_status(h.rank, h.tag, payload); });
  if (listener_) listener_(known.text);
  publish_status(lock);
  core_.waits().notify(lock);
}

void StatusExchange::publish_status(const Lock& lock) {
  if (!source_ || Clock::now() - published_at_ < status_age) return;
  published_at_ = Clock::now();
  const auto text = own_status(lock);
  ++own_statuses_;
  core_.sockets().for_each(
      lock, [&](Conn& c) { c.send_status(core_.membership().rank, own_statuses_, text); });
}

void StatusExchange::ask(Lock& lock, int peer) {
  const Membership& members = core_.membership();
  const Member to = members.members[size_t(peer)];
  const Hello hello{HelloKind::peer, members.ranks, 0, 0, members.me};
  lock.unlock();
  auto fd = auth_connect(Address{to.listen}, members.secret, bytes_of(hello),
                         Deadline::after(dial_s), nullptr);
  lock.lock();
  if (!fd || core_.shutdown().is_leaving(lock)) return;
  auto conn = core_.start(lock, std::move(*fd), PeerRole::peer, to);
  if (!conn || !source_) return;
  (*conn)->send_status(members.rank, ++own_statuses_, own_status(lock));
  core_.sockets().dialed.push_back(std::move(*conn));
}

// True if the network thread of `to` answers, independent of its program.
bool StatusExchange::answers(Lock& lock, const Member& to) {
  const Membership& members = core_.membership();
  const Hello hello{HelloKind::peer, members.ranks, 0, 0, members.me};
  const ShrinkHello watch{{HelloKind::watch, members.ranks, 0, 0, members.me}};
  lock.unlock();
  auto fd = auth_connect(Address{to.listen}, members.secret,
                         members.survivors ? bytes_of(watch) : bytes_of(hello),
                         Deadline::after(unresponsive_s), nullptr, Listener::has_started);
  lock.lock();
  if (!fd) return fd.error().code != Errc::timed_out;  // the ring detects a rank that has ended
  if (core_.shutdown().is_leaving(lock)) return true;
  if (auto conn = core_.start(lock, std::move(*fd), PeerRole::peer, to)) {
    core_.sockets().dialed.push_back(std::move(*conn));
  }
  return true;
}

StatusExchange::Unresponsive StatusExchange::find_unresponsive(Lock& lock,
                                                               const std::vector<int>& late) {
  const Membership& membership = core_.membership();
  const auto& members = membership.members;  // empty until the ranks have exchanged them
  std::vector<Member> asked;
  for (const auto& neighbor : {core_.sockets().next_member, core_.sockets().prev_member}) {
    if (neighbor) asked.push_back(*neighbor);
  }
  std::vector<int> further(late.begin(),
                           late.begin() + std::ptrdiff_t(std::min(late.size(), max_asked)));
  if (membership.in_ring() <= max_all_asked) {
    further.insert(further.end(), membership.ring.begin(), membership.ring.end());
  }
  for (const int r : further) {
    if (!members.empty()) asked.push_back(members[size_t(r)]);
  }
  std::set<int> answered{membership.rank};
  for (const Member& m : asked) {
    if (core_.shutdown().failure(lock) || core_.shutdown().is_leaving(lock)) break;
    if (answered.insert(m.rank).second && !answers(lock, m)) return {m};
  }
  return {{}, int(answered.size()) >= membership.in_ring()};
}

}  // namespace ccl::detail
