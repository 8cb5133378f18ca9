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

void PeerSockets::for_each(const Lock&, const std::function<void(Conn&)>& f) const {
  for (const auto& c : {next, prev}) {
    if (c) f(*c);
  }
  for (const auto& c : roots) f(*c);
  for (const auto& c : accepted) f(*c);
  for (const auto& c : dialed) f(*c);
  for (const auto& [peer, c] : out) {
    if (c && c != next && c != prev &&
        std::find(accepted.begin(), accepted.end(), c) == accepted.end()) {
      f(*c);
    }
  }
}

}  // namespace ccl::detail
