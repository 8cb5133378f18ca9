#pragma once

#include <ccl/detail/base/status.hpp>

#include <chrono>
#include <thread>

namespace ccl::detail {

/// Blocks until the communicator has an error, `leaving()` is true, or the process of `peer` has
/// ended in order, for at most 2 s. The other end of a connection may have left because of a third
/// rank, and the bootstrap's account of that can arrive later than the end of the connection. Ranks
/// that depart together pass on nothing of each other: `StayingRanks` finds them out in about 1 s.
///
/// Returns true if the peer is lost. Returns false if its process has ended in order: its data has
/// come, and nothing has failed. Also false if this rank departs itself, because others then may
/// leave, too.
template <class Leaving>
bool await_cause(const Status* status, int peer, Leaving leaving) {
  const auto due = std::chrono::steady_clock::now() + std::chrono::seconds{2};
  const auto is_due = [&] { return std::chrono::steady_clock::now() >= due; };
  const auto departs = [&] { return status->has_departed(peer) || status->is_leaving(); };
  while (status != nullptr && status->ok() && !departs() && !leaving() && !is_due()) {
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
  }
  return status == nullptr || !status->ok() || !departs();
}

}  // namespace ccl::detail
