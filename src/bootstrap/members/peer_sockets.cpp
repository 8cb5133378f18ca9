#include "bootstrap/members/peer_sockets.hpp"

#include <algorithm>
#include <utility>

namespace ccl::detail {

using namespace net;

void PeerSockets::set_next(const Lock&, std::shared_ptr<Conn> conn, const Member& member) {
  next = std::move(conn);
  next_member = member;
}

void PeerSockets::set_prev(const Lock&, std::shared_ptr<Conn> conn, const Member& member) {
  prev = std::move(conn);
  prev_member = member;
}

std::size_t PeerSockets::count_accepted(const Lock&, int peer) {
  std::erase_if(accepted, [peer](const auto& of) {
    return of.first == peer && !of.second->is_open() && !of.second->is_draining();
  });
  return accepted.count(peer);
}

void PeerSockets::for_each(const Lock&, const std::function<void(Conn&)>& f) const {
  for (const auto& c : {next, prev}) {
    if (c) f(*c);
  }
  for (const auto& c : roots) f(*c);
  for (const auto& [peer, c] : accepted) f(*c);
  for (const auto& c : dialed) f(*c);
  for (const auto& [peer, c] : out) {
    const auto [begin, end] = accepted.equal_range(peer);
    const auto is_same = [&c = c](const auto& of) { return of.second == c; };
    if (c && c != next && c != prev && std::none_of(begin, end, is_same)) f(*c);
  }
}

}  // namespace ccl::detail
