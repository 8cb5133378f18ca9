#include <ccl/detail/runtime/levels.hpp>
#include <ccl/comm/communicator.hpp>

#include <mutex>
#include <string_view>
#include <utility>

#include "comm/state.hpp"

namespace ccl {

int Communicator::rank() const {
  return state_->rank;
}
int Communicator::ranks() const {
  return state_->ranks;
}
int Communicator::device() const {
  return state_->config.device;
}
const std::string& Communicator::name() const {
  return state_->config.name;
}
// What creation fills in is its thread's until it has ended, and may be nothing where it failed.
int Communicator::ring_count() const {
  return state_->creating.load(std::memory_order_acquire) ? 0 : state_->arrangement.ring_count();
}
const std::vector<int>& Communicator::ring(int channel) const {
  static const std::vector<int> none;
  return ring_count() > 0 ? state_->arrangement.ring(channel) : none;
}
const PeerInfo& Communicator::peer(int rank) const {
  static const PeerInfo unknown{};
  if (state_->creating.load(std::memory_order_acquire)) return unknown;
  const auto at = std::size_t(rank);
  return at < state_->peers.size() ? state_->peers[at] : unknown;
}

Result<void> Communicator::wait() const {
  if (!state_->is_own()) return status();  // what creates it is in another process
  std::unique_lock lock{state_->creation_mutex};
  state_->created.wait(lock, [this] { return !state_->creating.load(); });
  lock.unlock();
  return status();
}

Result<void> Communicator::status() const {
  return state_->ready();
}

Result<void> Communicator::barrier() const {
  CCL_CHECK(state_->ready());
  if (!state_->bootstrap) return {};
  Operation op;
  std::string_view{"barrier"}.copy(op.what, sizeof op.what - 1);
  const Word ticket = state_->flight_recorder->note(op).ticket;
  const std::lock_guard lock{state_->bootstrap_mutex};
  state_->flight_recorder->started(ticket);
  auto met = state_->met(state_->bootstrap->barrier(state_->timeout_s));
  state_->flight_recorder->ended(ticket, met.has_value());
  return met;
}

Report Communicator::report() const {
  if (!state_->was_up()) return {};  // nobody is there to answer
  return state_->report(detail::report_limit_s);
}

Result<void> Communicator::finalize() const {
  CCL_CHECK(state_->ready());
  CCL_CHECK(state_->await_calls("finalize"));
  if (const auto parts = state_->current_levels()) {
    CCL_CHECK(parts->inner.finalize());
    if (parts->outer) CCL_CHECK(parts->outer->finalize());
  }
  if (state_->bootstrap) {
    const std::lock_guard lock{state_->bootstrap_mutex};
    CCL_CHECK(state_->met(state_->bootstrap->finalize(state_->timeout_s)));
  }
  state_->finalized.store(true, std::memory_order_release);
  return {};
}

void Communicator::abort(const std::string& why) const {
  if (!state_->is_own()) return;  // it goes on, elsewhere
  Error error{Errc::aborted, why, -1, state_->rank};
  if (!state_->creating && state_->bootstrap) state_->bootstrap->stop_shrink(error);
  // Who aborts while an operation runs wants to know who holds it up.
  if (state_->status.ok() && !state_->creating && state_->rank_status().running() != nullptr) {
    const int me = error.peer;
    error = state_->overdue(std::move(error));
    error.peer = me;
  }
  state_->fail_all(std::move(error));
}

Index Communicator::memory_budget() const {
  return state_->budget;
}
Index Communicator::memory_used() const {
  return state_->used.load();
}

}  // namespace ccl
