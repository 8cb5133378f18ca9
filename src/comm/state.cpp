#include "comm/state.hpp"

#include <ccl/comm/communicator.hpp>
#include <ccl/comm/log.hpp>
#include <ccl/detail/launch/in_flight.hpp>
#include <ccl/detail/runtime/call_sequencer.hpp>
#include <ccl/detail/runtime/connections.hpp>
#include <ccl/detail/runtime/host_id.hpp>
#include <ccl/detail/runtime/levels.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>

#include "base/forks.hpp"
#include "base/io/os_error.hpp"
#include "base/made_once.hpp"
#include "comm/lane_checks.hpp"
#include "comm/observe/failure_dump.hpp"
#include "comm/observe/health.hpp"
#include "comm/team_errors.hpp"
#include "gpu/order/graph_resources.hpp"

namespace ccl::detail {

namespace {
constexpr double drain_s = 60;  // for launches to end, without CCL_TIMEOUT
}  // namespace

std::shared_ptr<CommState> CommState::make(int rank, int ranks, Config config) {
  return {new CommState{rank, ranks, std::move(config)},
          [process = forks_before()](CommState* state) {
            if (forks_before() == process && state->end()) delete state;
          }};
}

bool CommState::end() {
  watchdog.stop();
  failure_watch.stop();
  departure.stop();
  idle_closer.reset();
  gpu_lender.reset();
  if (device.gpu) device.gpu->set_loans({});
  leave_health_service(*this);
  // Ends the bootstrap first. The other ranks then release the wires that they still use.
  rendezvous.set_bootstrap(nullptr);
  end_observed_failure(*this);
  notify_closed(*this);
  if (!device.gpu || !device.order) return true;
  const Error gone{Errc::aborted, "the communicator was destroyed"};
  status.set(gone);  // ends kernels that wait, those of the levels, too
  const double limit_s = limits.timeout_s > 0 ? limits.timeout_s : drain_s;
  if (device.order->drain(limit_s)) return true;
  log_warn(LogPart::init,
           "launches on CUDA device {} have not ended {} s after their communicator was dropped "
           "(their stream has other work before them, which does not end); their memory stays",
           device.gpu->device(), limit_s);
  return false;
}

CommState::~CommState() {
  status.end_followers();  // the levels end first
  if (!device.gpu) return;
  device.registry.reset();
  status.copy_to(nullptr);
  free_graph_resources();
}

Error CommState::annotate(Error error) const {
  // A call through a handle that was moved from gets that error, whatever else is wrong with it.
  if (this == moved_from().get()) error = std::move(status.result()).error();
  error.rank = identity.rank();
  if (error.host.empty()) error.host = host_name();
  return with_shortage(std::move(error));
}

void CommState::look_at_lanes(LaneFailure& lane_failure) {
  const auto load = [](Word& at) {
    return std::atomic_ref<Word>{at}.load(std::memory_order_acquire);
  };
  const Word who = load(lane_failure.peer);
  if (who == 0 || !status.ok()) return;
  const int peer = int(who) - 1;
  if (is_of_check(load(lane_failure.why))) {
    return rendezvous.fail_all(annotate(error_of_check(lane_failure, identity.rank())));
  }
  if (is_of_team(load(lane_failure.why))) {
    return rendezvous.fail_all(annotate(error_of_team(lane_failure)));
  }
  if (load(lane_failure.why) != LaneFailure::late)
    return rendezvous.fail_all(overflow(lane_failure));
  if (status.has_departed(peer)) return rendezvous.lose_departed(peer);
  Error error{Errc::timed_out,
              fmt::format("no progress for {} s in a kernel (it waits for {} at step {}); look "
                          "there, or raise CCL_TIMEOUT",
                          limits.timeout_s, awaited(peer), load(lane_failure.step))};
  error.peer = peer;
  rendezvous.fail_all(observers.overdue(std::move(error)));
}

std::string CommState::awaited(int peer) const {
  if (has_network && peer == identity.rank()) return "the network that reduces between hosts";
  const auto& peers = identity.peers();
  return fmt::format("rank {} on {}", peer,
                     peer < int(peers.size()) ? peers[std::size_t(peer)].host : "?");
}

Error CommState::overflow(const LaneFailure& found) const {
  const int peer = int(found.peer) - 1;
  Error error{Errc::overflow, {}};
  error.peer = peer;
  if (found.why == LaneFailure::refused) {
    error.what = fmt::format(
        "rank {} sent nothing (it has more rows for some rank than that has room for); see its own "
        "error",
        peer);
  } else {
    const int me = identity.rank();
    const int from = found.sends != 0 ? me : peer, to = found.sends != 0 ? peer : me;
    error.what = fmt::format(
        "rank {} has {} rows for rank {} (the stride leaves room for {}); raise the stride, or "
        "send "
        "fewer",
        from, int(unsigned(found.count)), to, found.stride);
  }
  return error;
}

std::shared_ptr<CommState> moved_from() {
  // Never destroyed, because a handle may be destroyed after all static objects.
  static constinit MadeOnce<CommState> one;
  CommState& state = one.get([] {
    Config config;
    config.device = Config::cpu;
    auto made = std::make_unique<CommState>(-1, 0, std::move(config));
    made->status.set(
        {Errc::invalid_usage,
         "the handle was moved from (what it stood for is where it was moved to); call "
         "through that one, or assign to this one first"});
    made->rendezvous.set_finalized();
    return made;
  });
  return {std::shared_ptr<void>{}, &state};  // without a reference count
}

Result<void> CommState::look_at_all() {
  // Comes first, because the thread that holds a lock may not exist in this process.
  if (!identity.is_own()) {
    Error error{Errc::invalid_usage,
                "the communicator is another process's (this one was forked from it, which leaves "
                "its threads behind); create one after fork"};
    error.rank = identity.rank();
    return fail(std::move(error));
  }
  if (creation.running()) {
    return fail(
        annotate({Errc::in_progress, "the communicator is still being created; call wait"}));
  }
  // Preferred to the status, which may be an error that other ranks sent because of this one.
  if (creation.failure()) return fail(*creation.failure());
  if (device.gpu) look_at_lanes(device.gpu->watched().lane_failure);
  const auto parts = levels.current();
  if (parts && status.ok()) {
    if (auto failed = LevelCache::failure(*parts)) rendezvous.fail_all(*std::move(failed));
  }
  if (auto well = status.result(); !well) {
    if (parts && !failure_watch.is_paused()) LevelCache::fail(*parts, well.error());
    dump_failure(*this);
    return fail(annotate(std::move(well).error()));
  }
  if (rendezvous.finalized()) {
    return fail(
        annotate({Errc::invalid_usage, "the communicator has been finalized; make a new one"}));
  }
  return {};
}

bool CommState::was_up() const {
  return identity.is_own() && !creation.running() && !creation.failure() && !rendezvous.finalized();
}

std::shared_ptr<void> in_flight(const Communicator& comm) {
  auto state = Access::state(comm);
  state->device.in_flight.fetch_add(1, std::memory_order_relaxed);
  CommState* const at = state.get();
  return {at, [state = std::move(state)](void*) {
            state->device.in_flight.fetch_sub(1, std::memory_order_release);
          }};
}

Result<void> CommState::await_calls(const char* who) {
  if (on_host_stream()) return {};  // the caller may be one of these calls
  const auto begin = std::chrono::steady_clock::now();
  auto pause = std::chrono::microseconds{20};
  while (device.busy()) {
    CCL_CHECK(ready());
    const std::chrono::duration<double> gone = std::chrono::steady_clock::now() - begin;
    if (limits.timeout_s > 0 && gone.count() > limits.timeout_s) {
      const Error error = annotate(
          {Errc::timed_out,
           fmt::format("{} waits for calls on streams that have not ended in {} s (the "
                       "streams have other work before them, or ranks that they wait for are "
                       "late); synchronize the streams first, or raise CCL_TIMEOUT",
                       who, limits.timeout_s)});
      rendezvous.fail_all(error);
      return fail(error);
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::microseconds{1000});
  }
  return ready();
}

}  // namespace ccl::detail
