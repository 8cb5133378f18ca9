#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "comm/observe/call_counters.hpp"

namespace ccl::detail {

struct CommState;

/// State of a rank for the health service, beside its `RankStatus`. Trivially copyable, because
/// ranks exchange it as bytes.
struct RankHealth {
  char magic[4] = {'c', 'c', 'l', 'h'};
  std::int32_t error = 0;       // Errc of the first failure
  std::int32_t lost_peer = -1;  // rank that this one has lost, or -1
  std::int32_t device = -1;
  std::uint8_t is_up = 0, finalize_called = 0;
  std::uint8_t unused[6] = {};
  Word calls[CallCounters::operations.size()] = {};  // since creation
};

/// Health of this rank. Any thread; takes short locks only.
RankHealth health_of(const CommState& state);
/// Puts the health in front of the bytes of a status.
std::vector<std::byte> pack(const RankHealth& health, std::vector<std::byte> status);
/// Returns the bytes of the status behind the health; empty if there are none.
std::span<const std::byte> without_health(std::span<const std::byte> bytes);
/// Returns false if the bytes do not begin with a valid health.
bool unpack(std::span<const std::byte> bytes, RankHealth& health);

/// Lists a communicator in the health service of this process. The first starts the service. A
/// service that cannot start is an INFO line.
void join_health_service(CommState& state) noexcept;
/// Ends that. Takes a short lock, and waits for no client. May be called again.
void leave_health_service(CommState& state) noexcept;

}  // namespace ccl::detail
