#include "bootstrap/staying_ranks.hpp"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/exceptions.hpp"
#include "base/thread.hpp"
#include "bootstrap/core.hpp"
#include "net/auth.hpp"
#include "net/ended_listeners.hpp"

namespace ccl::detail {

using namespace net;

namespace {
constexpr double answer_s = 2;  // of the next rank; a later call tries again
}  // namespace

std::vector<int> StayingRanks::not_connected(const Lock& lock) const {
  const Membership& members = core_.membership();
  const auto position = std::size_t(members.position_of(members.rank));
  std::vector<int> ranks;
  for (std::size_t d = 1; d < members.ring.size(); ++d) {
    const int rank = members.ring[(position + d) % members.ring.size()];
    if (core_.status().has_departed(rank)) continue;
    if (is_connected(lock, rank)) break;
    ranks.push_back(rank);
  }
  return ranks;
}

bool StayingRanks::is_connected(const Lock&, int peer) const {
  const PeerSockets& sockets = core_.sockets();
  const auto is_open = [](const auto& conn) { return conn != nullptr && conn->is_open(); };
  const auto to_peer = [&](const auto& connections) {
    const auto found = connections.find(peer);
    return found != connections.end() && is_open(found->second);
  };
  const auto leads_there = [&](const auto& conn, const auto& member) {
    return is_open(conn) && member && member->rank == peer;
  };
  return to_peer(sockets.out) || to_peer(sockets.in) ||
         leads_there(sockets.next, sockets.next_member) ||
         leads_there(sockets.prev, sockets.prev_member);
}

void StayingRanks::join(const Lock& lock) noexcept {
  if (connecting_ || core_.shutdown().is_leaving(lock)) return;
  if (!core_.status().any_departed() || !core_.sockets().has_ring(lock)) return;
  const auto is_needed = [&]() -> Result<bool> { return !not_connected(lock).empty(); };
  if (!without_exceptions(is_needed).value_or(false)) return;
  const auto connect_all = [](const std::weak_ptr<Bootstrap::Core>& weak) {
    const auto core = weak.lock();
    if (!core) return;
    Lock held = Engine::get().lock();
    StayingRanks& of = core->staying();
    (void)completes([&] {
      while (of.connect_next(held)) {
      }
    });
    if (!held.owns_lock()) held.lock();
    of.connecting_ = false;
  };
  auto thread = own_thread("a connection to the next rank", connect_all, core_.weak_from_this());
  if (!thread) return;  // a later call tries again
  connecting_ = true;   // the thread waits for the lock
  thread->detach();
}

bool StayingRanks::connect_next(Lock& lock) {
  const Shutdown& shutdown = core_.shutdown();
  if (shutdown.is_leaving(lock)) return false;  // the status may be gone
  const std::vector<int> ranks = not_connected(lock);
  if (ranks.empty()) return false;
  const Membership& members = core_.membership();
  std::vector<Address> listeners;
  for (const int rank : ranks) listeners.emplace_back(members.members[std::size_t(rank)].listen);
  const Secret secret = members.secret;
  lock.unlock();
  const std::size_t ended = ended_listeners(listeners, secret);
  lock.lock();
  if (shutdown.is_leaving(lock)) return false;
  for (std::size_t n = 0; n < ended; ++n) record_departure(lock, ranks[n]);
  return ended > 0 || connect(lock, ranks.front());
}

void StayingRanks::record_departure(const Lock& lock, int peer) {
  Shutdown& shutdown = core_.shutdown();
  if (shutdown.failure(lock)) core_.status().set_departed(peer);
  shutdown.on_departure(lock, peer);
}

bool StayingRanks::connect(Lock& lock, int peer) {
  const Membership& members = core_.membership();
  const Member to = members.members[std::size_t(peer)];
  const Hello hello{HelloKind::peer, members.ranks, 0, 0, members.me};
  const Secret secret = members.secret;
  lock.unlock();
  auto socket = auth_connect(Address{to.listen}, secret, bytes_of(hello), Deadline::after(answer_s),
                             nullptr, Listener::has_started);
  lock.lock();
  if (core_.shutdown().is_leaving(lock)) return false;
  if (!socket) {
    const bool ended = socket.error().code == Errc::peer_lost;
    if (ended) record_departure(lock, peer);
    return ended;
  }
  if (is_connected(lock, peer)) return false;  // meanwhile, for a message or by the peer
  auto& out = core_.sockets().out[peer];
  auto conn = core_.start(lock, std::move(*socket), PeerRole::peer, to);
  if (!conn) return false;
  out = std::move(*conn);
  return false;
}

}  // namespace ccl::detail
