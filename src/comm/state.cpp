#include "comm/state.hpp"

#include <ccl/detail/launch/in_flight.hpp>
#include <ccl/detail/runtime/levels.hpp>
#include <ccl/comm/communicator.hpp>
#include <ccl/detail/runtime/host_id.hpp>
#include <ccl/detail/runtime/connections.hpp>
#include <ccl/comm/log.hpp>
#include <ccl/detail/runtime/call_sequencer.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <string_view>
#include <thread>
#include <utility>

#include "connect/buffer_registry.hpp"
#include "base/os_error.hpp"

namespace ccl::detail {

CommState::~CommState() {
  // Wires that others still use are theirs to give up: the bootstrap's end tells them.
  bootstrap.reset();
  if (!gpu) return;
  const Error gone{Errc::aborted, "the communicator was destroyed"};
  status.set(gone);  // ends kernels that wait
  if (levels) {      // theirs, too, which the same order waits for
    levels->inner.state()->status.set(gone);
    if (levels->outer) levels->outer->state()->status.set(gone);
  }
  order->drain();
  registry.reset();
  status.copy_to(nullptr);
  bury();
}

Error CommState::annotate(Error error) const {
  // Whatever else is wrong with a call through a handle that was moved from.
  if (this == moved_from().get()) error = std::move(status.result()).error();
  error.rank = rank;
  if (error.host.empty()) error.host = host_name();
  return with_shortage(std::move(error));
}

void CommState::look_at_gpu() {
  LaneFailure& lane_failure = gpu->watched().lane_failure;
  const auto load = [](Word& at) {
    return cuda::atomic_ref<Word, cuda::thread_scope_system>{at}.load(
        cuda::std::memory_order_acquire);
  };
  const Word who = load(lane_failure.peer);
  if (who == 0 || !status.ok()) return;
  const int peer = int(who) - 1;
  if (load(lane_failure.why) != LaneFailure::late) return fail_all(overflow(lane_failure));
  Error error{Errc::timed_out,
              fmt::format("no progress for {} s in a kernel (it waits for rank {} on {} at step "
                          "{}); look there, or raise CCL_TIMEOUT",
                          timeout_s, peer, peer < int(peers.size()) ? peers[peer].host : "?",
                          load(lane_failure.step))};
  error.peer = peer;
  fail_all(overdue(std::move(error)));
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
    const int from = found.sends != 0 ? rank : peer, to = found.sends != 0 ? peer : rank;
    error.what = fmt::format(
        "rank {} has {} rows for rank {} (the stride leaves room for {}); raise the stride, or "
        "send "
        "fewer",
        from, int(unsigned(found.count)), to, found.stride);
  }
  return error;
}

std::shared_ptr<CommState> moved_from() noexcept {
  // Never destroyed: handles end as late as they like.
  static CommState* const state = [] {
    Config config;
    config.device = Config::cpu;
    auto* const made = new CommState{-1, 0, std::move(config)};
    made->status.set(
        {Errc::invalid_usage,
         "the handle was moved from (what it stood for is where it was moved to); call "
         "through that one, or assign to this one first"});
    made->finalized = true;
    return made;
  }();
  return {std::shared_ptr<void>{}, state};  // nothing to count
}

Result<void> CommState::ready() {
  if (!is_own()) {  // before any lock: its holder may not be in this process
    Error error{Errc::invalid_usage,
                "the communicator is another process's (this one was forked from it, which leaves "
                "its threads behind); create one after fork"};
    error.rank = rank;
    return fail(std::move(error));
  }
  if (creating.load(std::memory_order_acquire)) {
    return fail(annotate({Errc::in_progress, "the communicator is still being created; call wait"}));
  }
  if (creation_failure) return fail(*creation_failure);  // others may have ended for it since
  if (gpu) look_at_gpu();
  const auto parts = current_levels();
  if (parts && status.ok()) {
    if (auto failed = failure_of_levels(*parts)) fail_all(*std::move(failed));
  }
  if (auto well = status.result(); !well) {
    if (parts) fail_levels(*parts, well.error());
    return fail(annotate(std::move(well).error()));
  }
  if (finalized.load(std::memory_order_acquire)) {
    return fail(
        annotate({Errc::invalid_usage, "the communicator has been finalized; make a new one"}));
  }
  return {};
}

bool CommState::was_up() const {
  return is_own() && !creating.load(std::memory_order_acquire) && !creation_failure &&
         !finalized.load(std::memory_order_acquire);
}

void CommState::fail_all(Error error) {
  error = annotate(std::move(error));
  {
    const std::lock_guard lock{creation_mutex};
    status.set(error);
    if (creating) return;  // its thread, which has the bootstrap, tells the others
  }
  if (bootstrap) bootstrap->abort(error);
  if (const auto parts = current_levels()) fail_levels(*parts, error);
}

Result<void> CommState::disagree(std::string what, int peer) {
  if (auto well = status.result(); !well) return fail(annotate(std::move(well).error()));
  Error error = annotate({Errc::mismatch, std::move(what)});
  error.peer = peer;
  // Who left earlier would have the others hear of that instead.
  (void)bootstrap->barrier();
  fail_all(error);
  return fail(std::move(error));
}

std::shared_ptr<void> in_flight(const Communicator& comm) {
  auto state = comm.state();
  state->in_flight.fetch_add(1, std::memory_order_relaxed);
  CommState* const at = state.get();
  return {at, [state = std::move(state)](void*) {
            state->in_flight.fetch_sub(1, std::memory_order_release);
          }};
}

Result<void> CommState::await_calls(const char* who) {
  if (on_host_stream()) return {};  // one of them may be who asks
  const auto begin = std::chrono::steady_clock::now();
  auto pause = std::chrono::microseconds{20};
  while (in_flight.load(std::memory_order_acquire) > 0 || (order && !order->idle())) {
    CCL_CHECK(ready());
    const std::chrono::duration<double> gone = std::chrono::steady_clock::now() - begin;
    if (timeout_s > 0 && gone.count() > timeout_s) {
      const Error error =
          annotate({Errc::timed_out,
                 fmt::format("{} waits for calls on streams that have not ended in {} s (the "
                             "streams have other work before them, or ranks that they wait for are "
                             "late); synchronize the streams first, or raise CCL_TIMEOUT",
                             who, timeout_s)});
      fail_all(error);
      return fail(error);
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::microseconds{1000});
  }
  return ready();
}

Result<void> CommState::met(Result<void> rendezvous) {
  if (rendezvous) return {};
  if (rendezvous.error().code != Errc::timed_out) return fail(annotate(std::move(rendezvous).error()));
  Error error =
      annotate(overdue(std::move(rendezvous).error()));  // journals know more than who is missing
  fail_all(error);
  return fail(std::move(error));
}

Result<void> CommState::after_creation(Result<void> rendezvous) {
  if (rendezvous) return {};
  Error error = annotate(std::move(rendezvous).error());
  if (error.code == Errc::timed_out) fail_all(error);
  return fail(std::move(error));
}

Error CommState::without_answer(Error error) {
  if (!bootstrap || !status.ok()) return error;
  const auto told = bootstrap->rank_statuses(report_limit_s);
  if (auto well = status.result(); !well) return std::move(well).error();
  const auto silent = [&told](int r) { return told[std::size_t(r)].empty(); };
  int found = error.peer >= 0 && silent(error.peer) ? error.peer : -1;
  for (int r = 0; r < ranks && found < 0; ++r) {
    if (silent(r)) found = r;
  }
  if (found < 0) return error;
  error.peer = found;
  error.what = fmt::format("rank {} on {} does not answer (stopped, or cut off): {}", found,
                           peers[std::size_t(found)].host, error.what);
  fail_all(error);
  return error;
}

void CommState::fail_levels(const Levels& parts, const Error& error) {
  for (const Communicator* part : {&parts.inner, parts.outer ? &*parts.outer : nullptr}) {
    if (part != nullptr && part->state()->status.ok()) part->state()->fail_all(error);
  }
}

std::shared_ptr<const Levels> CommState::current_levels() {
  if (!has_levels.load(std::memory_order_acquire)) return nullptr;
  const std::lock_guard lock{levels_mutex};
  return levels;
}

RankStatus CommState::rank_status() {
  RankStatus mine;
  mine.rank = rank;
  mine.answered = true;
  mine.host = host_name();
  mine.pid = peers.empty() ? 0 : peers[rank].pid;
  mine.now_ns = Word(std::chrono::duration_cast<std::chrono::nanoseconds>(
                         std::chrono::system_clock::now().time_since_epoch())
                         .count());
  if (!flight_recorder) return mine;
  mine.called = flight_recorder->called();
  const auto read = [](const WaitRecord& waits) {
    return WaitsFor{int(HostMemory::load_relaxed(&waits.peer)) - 1,
                    HostMemory::load_relaxed(&waits.step)};
  };
  if (gpu) {
    const WaitRecord& waits = gpu->watched().waits;
    mine.waits = read(waits);
    mine.operations = flight_recorder->latest_on_device(
        reported_operations, mine.waits.peer < 0 ? 0 : HostMemory::load_relaxed(&waits.ticket));
  } else {
    mine.operations = flight_recorder->latest(reported_operations);
  }
  const Operation* running = mine.running();
  if (running == nullptr) return mine;
  const std::lock_guard lock{connections_mutex};
  for (const Connections* one : connections) {
    if (one->number() != running->composition) continue;
    if (one->calls().watch.waits != nullptr) mine.waits = read(*one->calls().watch.waits);
    mine.steps = one->steps();
  }
  return mine;
}

Report CommState::report(double limit_s) {
  std::vector<RankStatus> all(ranks);
  if (!bootstrap) {
    all[0] = rank_status();
    return diagnose(std::move(all), 0);
  }
  const auto told = bootstrap->rank_statuses(limit_s);
  for (int r = 0; r < ranks; ++r) {
    if (!unpack(told[r], all[r]) || all[r].rank != r) {
      all[r] = {};
      all[r].rank = r;
      if (std::size_t(r) < peers.size()) all[r].host = peers[r].host;  // it may have failed before
    }
  }
  return diagnose(std::move(all), rank);
}

Error CommState::overdue(Error error) {
  if (!bootstrap || !status.ok()) return error;
  const Report said = report(report_limit_s);
  if (said.behind >= 0) {
    error.peer = said.behind;
    error.what = error.code == Errc::aborted ? fmt::format("{} ({})", error.what, said.verdict)
                                             : fmt::format("{}: {}", said.verdict, error.what);
  }
  // All ranks come here, and the log may be one for all of them: one speaks for all.
  const auto first = std::find_if(said.ranks.begin(), said.ranks.end(),
                                  [](const RankStatus& of) { return of.answered; });
  log_report(said, first->rank == rank ? LogLevel::warn : LogLevel::info);
  return error;
}

void CommState::log_report(const Report& said, LogLevel level) {
  const std::string text = said.text();
  for (std::string_view rest = text; !rest.empty();) {
    const auto line = rest.substr(0, rest.find('\n'));
    log(level, LogPart::coll, "{}", line);
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
  }
}

}  // namespace ccl::detail
