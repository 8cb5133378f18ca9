#include "comm/rank/identity.hpp"

#include <fmt/format.h>

namespace ccl::detail {

std::string say(const Identity& identity) {
  const std::string& name = identity.config().name;
  return fmt::format("communicator {}{}of {} ranks", name, name.empty() ? "" : " ",
                     identity.ranks());
}

std::vector<int> Identity::heads() const {
  if (const auto& found = arrangement_.heads_of(rank_); !found.empty()) return found;
  std::vector<int> all;
  for (const PeerInfo& peer : peers_) {
    if (peer.host_hash == peers_[std::size_t(rank_)].host_hash) all.push_back(peer.rank);
  }
  return all;
}

}  // namespace ccl::detail
