#include <ccl/comm/communicator.hpp>
#include <ccl/detail/runtime/guarded.hpp>
#include <ccl/detail/runtime/levels.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <string_view>
#include <utility>

#include "base/exceptions.hpp"
#include "comm/observe/comm_events.hpp"
#include "comm/observe/failure_dump.hpp"
#include "comm/observe/health.hpp"
#include "comm/state.hpp"
#include "dump/flight_dump.hpp"

namespace ccl {

int Communicator::rank() const {
  return state_->identity.rank();
}
int Communicator::ranks() const {
  return state_->identity.ranks();
}
int Communicator::device() const {
  return state_->identity.config().device;
}
const std::string& Communicator::name() const {
  return state_->identity.config().name;
}
// The creating thread sets rings and peers. They stay empty if creation fails.
int Communicator::ring_count() const {
  return state_->creation.running() ? 0 : state_->identity.arrangement().ring_count();
}
const std::vector<int>& Communicator::ring(int channel) const {
  static const std::vector<int> none;
  return ring_count() > 0 ? state_->identity.arrangement().ring(channel) : none;
}
const PeerInfo& Communicator::peer(int rank) const {
  static const PeerInfo unknown{};
  if (state_->creation.running()) return unknown;
  const auto at = std::size_t(rank);
  return at < state_->identity.peers().size() ? state_->identity.peers()[at] : unknown;
}

Result<void> Communicator::wait() const {
  if (!state_->identity.is_own()) return status();  // the creating thread is in another process
  state_->creation.wait();
  return status();
}

Result<void> Communicator::status() const {
  return detail::without_exceptions([this] { return state_->ready(); });
}

namespace detail {
namespace {
Result<void> barrier(CommState& state) {
  CCL_CHECK(state.ready());
  if (!state.rendezvous.bootstrap()) return {};
  state.departure.note_use();
  Operation op;
  std::string_view{"barrier"}.copy(op.what, sizeof op.what - 1);
  const auto [cell, tally] = state.observers.counters().barrier();
  const Word ticket = state.observers.recorder()->note(op, false, tally).ticket;
  const auto lock = state.rendezvous.lock();
  state.observers.recorder()->started_on_host(ticket);
  auto done = state.rendezvous.after_rendezvous(
      state.rendezvous.bootstrap()->barrier(state.limits.timeout_s));
  state.observers.recorder()->ended(ticket, done.has_value());  // no time of CPU lanes
  if (!done) state.observers.counters().failed(cell);
  return done;
}

Result<void> finalize(CommState& state) {
  CCL_CHECK(state.ready());
  state.observers.life().finalize_called = true;
  CCL_CHECK(state.await_calls("finalize"));
  if (const auto parts = state.levels.current()) {
    for (const Levels::Part& part : parts->parts()) CCL_CHECK(part.comm.finalize());
  }
  if (state.rendezvous.bootstrap()) {
    const auto lock = state.rendezvous.lock();
    CCL_CHECK(state.rendezvous.after_rendezvous(state.rendezvous.bootstrap()->finalize(
        state.limits.timeout_s, [&state] { state.departure.drain(); })));
  }
  state.rendezvous.set_finalized();
  leave_health_service(state);
  notify_closed(state);
  return {};
}

/// Ends the kernels before anything else: a thread that launches may be blocked in the driver until
/// they end, with a lock that a report takes. Then asks who is behind, for the error.
void abort_on_device(CommState& state, Error error) {
  error = state.annotate(std::move(error));
  const FailureWatch::Pause until_sent{state};
  const bool first = state.status.set(error);
  if (state.rendezvous.bootstrap()) state.rendezvous.bootstrap()->stop_shrink(error);
  if (first && state.rendezvous.bootstrap() && state.observers.status().running() != nullptr) {
    const Report found = state.observers.report(report_limit_s);
    if (found.behind >= 0) error.what += fmt::format(" ({})", found.summary);
    const auto first_there = std::ranges::find_if(found.ranks, &RankStatus::answered);
    const bool leads = first_there != found.ranks.end() &&
                       first_there->rank == state.identity.rank();  // all may abort
    if (!found.ranks.empty()) {
      Observers::log_report(found, leads ? LogLevel::warn : LogLevel::info);
    }
    state.status.explain(error.what);
  }
  state.rendezvous.fail_all(std::move(error));
}

void abort(CommState& state, const std::string& why) {
  Error error{Errc::aborted, why, -1, state.identity.rank()};
  const bool created = !state.creation.running();
  if (created && state.device.gpu) return abort_on_device(state, std::move(error));
  if (created && state.rendezvous.bootstrap()) state.rendezvous.bootstrap()->stop_shrink(error);
  // If an operation runs, the error names the rank that is behind.
  if (state.status.ok() && created && state.observers.status().running() != nullptr) {
    const int me = error.peer;
    error = state.observers.overdue(std::move(error));
    error.peer = me;
  }
  state.rendezvous.fail_all(std::move(error));
}
}  // namespace
}  // namespace detail

Result<void> Communicator::barrier() const {
  return detail::guarded(*this, [this] { return detail::barrier(*state_); });
}

Report Communicator::report() const {
  if (!state_->was_up()) return {};  // no rank answers
  return state_->observers.report(detail::report_limit_s);
}

Report Communicator::stall() const {
  if (!state_->was_up()) return {};
  const auto report = state_->watchdog.latest();
  return report ? *report : Report{};
}

FlightRecord Communicator::flight_record() const {
  if (!state_->was_up()) return {};
  return detail::flight_record(*state_);
}

Result<void> Communicator::dump(const std::string& folder) const {
  return detail::without_exceptions([&]() -> Result<void> {
    const bool none = state_->identity.ranks() == 0;  // the handle was moved from
    if (none || !state_->identity.is_own() || state_->creation.running()) return state_->ready();
    auto written = detail::write_flight_record(detail::flight_record(*state_), folder);
    if (!written) return fail(state_->annotate(std::move(written).error()));
    return {};
  });
}

Result<void> Communicator::finalize() const {
  return detail::guarded(*this, [this] { return detail::finalize(*state_); });
}

void Communicator::abort(const std::string& why) const {
  if (!state_->identity.is_own()) return;  // the communicator belongs to another process
  if (detail::completes([&] { detail::abort(*state_, why); })) return;
  state_->rendezvous.fail_all(detail::brief_error(Errc::aborted, state_->identity.rank()));
}

Index Communicator::memory_budget() const {
  return state_->limits.budget;
}
Index Communicator::memory_used() const {
  return state_->limits.used.load();
}

}  // namespace ccl
