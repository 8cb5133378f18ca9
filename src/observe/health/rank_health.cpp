#include <algorithm>
#include <cstring>

#include "comm/observe/health.hpp"
#include "comm/state.hpp"

namespace ccl::detail {

RankHealth health_of(const CommState& state) {
  RankHealth health;
  const auto well = state.status.result();
  if (!well) {
    health.error = int(well.error().code);
    if (well.error().code == Errc::peer_lost) health.lost_peer = well.error().peer;
  }
  health.device = state.identity.config().device;
  health.is_up = state.observers.life().is_up.load(std::memory_order_relaxed);
  health.finalize_called = state.observers.life().finalize_called.load(std::memory_order_relaxed);
  for (std::size_t i = 0; i < std::size(health.calls); ++i) {
    health.calls[i] = state.observers.counters().calls(int(i));
  }
  return health;
}

std::vector<std::byte> pack(const RankHealth& health, std::vector<std::byte> status) {
  const std::size_t bytes = status.size();
  status.resize(sizeof health + bytes);
  std::memmove(status.data() + sizeof health, status.data(), bytes);
  std::memcpy(status.data(), &health, sizeof health);
  return status;
}

std::span<const std::byte> without_health(std::span<const std::byte> bytes) {
  return bytes.subspan(std::min(bytes.size(), sizeof(RankHealth)));
}

bool unpack(std::span<const std::byte> bytes, RankHealth& health) {
  RankHealth read;
  if (bytes.size() < sizeof read) return false;
  std::memcpy(&read, bytes.data(), sizeof read);
  if (std::memcmp(read.magic, RankHealth{}.magic, sizeof read.magic) != 0) return false;
  if (read.error < 0 || read.error > int(last_errc)) return false;
  health = read;
  return true;
}

}  // namespace ccl::detail
