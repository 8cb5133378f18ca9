#include "comm/observe/observers.hpp"

#include <ccl/detail/lanes/host_memory.hpp>
#include <ccl/detail/runtime/connections.hpp>
#include <ccl/detail/runtime/host_id.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <string_view>
#include <utility>

#include "comm/observe/health.hpp"
#include "comm/state.hpp"
#include "observe/diagnosis.hpp"

namespace ccl::detail {

namespace {

/// Time after the last sign of a wait, by this host's clock, after which it has ended: a record
/// stays when its lane goes on, and computes. Lanes of a GPU give a sign every few milliseconds,
/// those of a CPU at each poll, which is late if other threads have the core.
constexpr Word wait_over_ns = 2'000'000'000;

WaitsFor read(const WaitRecord& waits) {
  return {int(HostMemory::load_relaxed(&waits.peer)) - 1, HostMemory::load_relaxed(&waits.step)};
}

/// Sentence on launches of this process on the GPU that may have no place, or an empty text.
std::string shortage_text(const CommDevice& device) {
  const auto found = device.order ? device.order->shortage() : std::nullopt;
  if (!found) return {};
  return fmt::format("{} of {} blocks that {} communicators have queued on its GPU have a place",
                     found->multiprocessors, found->blocks, found->communicators);
}

/// Adds to an error what keeps launches of some rank from running, if anything does.
void add_shortage(Error& error, const Report& report) {
  const auto lacks = std::ranges::find_if(
      report.ranks, [](const RankStatus& rank) { return !rank.shortage.empty(); });
  if (lacks == report.ranks.end()) return;
  error.what += fmt::format(
      "; on rank {} {}: limit the blocks of each (CCL_MAX_CTAS, Config::max_channels), or set "
      "CCL_LAUNCH_ORDER_IMPLICIT=1",
      lacks->rank, lacks->shortage);
}

}  // namespace

void Observers::add(Connections* made) {
  const auto lock = lock_compositions();
  compositions_.push_back(made);
}

void Observers::remove(Connections* gone) {
  const auto lock = lock_compositions();
  std::erase(compositions_, gone);
}

void Observers::add(WindowState* made) {
  const auto lock = lock_windows();
  if (std::ranges::find(windows_, made) == windows_.end()) windows_.push_back(made);
}

void Observers::remove(WindowState* gone) {
  const auto lock = lock_windows();
  std::erase(windows_, gone);
}

void Observers::open_window(Word number) {
  const auto lock = lock_windows();
  open_numbers_.push_back(number);
  open_windows_.store(int(open_numbers_.size()), std::memory_order_relaxed);
}

void Observers::close_window(Word number) {
  const auto lock = lock_windows();
  const auto found = std::ranges::find(open_numbers_, number);
  if (found != open_numbers_.end()) open_numbers_.erase(found);
  open_windows_.store(int(open_numbers_.size()), std::memory_order_relaxed);
}

std::vector<Word> Observers::open_window_numbers() {
  const auto lock = lock_windows();
  return open_numbers_;
}

RankStatus Observers::status(int ended) {
  const Identity& identity = state_.identity;
  RankStatus mine;
  mine.rank = identity.rank();
  mine.answered = true;
  mine.host = host_name();
  mine.pid = identity.peers().empty() ? 0 : identity.peers()[std::size_t(identity.rank())].pid;
  mine.now_ns = Word(std::chrono::duration_cast<std::chrono::nanoseconds>(
                         std::chrono::system_clock::now().time_since_epoch())
                         .count());
  if (!recorder_) return mine;
  mine.called = recorder_->called();
  if (state_.device.gpu) {
    mine.shortage = shortage_text(state_.device);
    const WaitRecord& waits = state_.device.gpu->watched().waits;
    mine.waits = read(waits);
    mine.operations = recorder_->latest_on_device(
        ended, mine.waits.peer < 0 ? 0 : HostMemory::load_relaxed(&waits.ticket));
    const bool stands_still = HostMemory::load_relaxed(&waits.seen_ns) == seen_ns_;
    if (stands_still && is_over(seen_since_ns_)) mine.waits.peer = -1;
    if (mine.waits.peer < 0) mine.waits = read(state_.device.gpu->watched().program_waits);
  } else {
    mine.operations = recorder_->latest(ended);
  }
  mine.network_bytes = state_.proxy.bytes_moved();
  const Operation* running = mine.running();
  const auto lock = lock_compositions();
  const auto add_steps = [&](const Connections& of) {
    const auto steps = of.steps();
    mine.steps.insert(mine.steps.end(), steps.begin(), steps.end());
  };
  for (const Connections* one : compositions_) {
    if (running == nullptr || one->number() != running->composition) continue;
    const AbortWatch& watch = one->calls().watch;
    if (!state_.device.gpu && watch.waits != nullptr) {
      mine.waits = read(*watch.waits);
      if (is_over(HostMemory::load_relaxed(&watch.waits->seen_ns))) mine.waits.peer = -1;
    }
    add_steps(*one);
  }
  // A rank that has done its part runs something else, or nothing, while others wait for its data.
  for (const Connections* one : compositions_) {
    if (running != nullptr && one->number() == running->composition) continue;
    const auto of_it = [&](const Operation& op) { return op.composition == one->number(); };
    if (std::ranges::any_of(mine.operations, of_it)) add_steps(*one);
  }
  return mine;
}

/// True if no lane has polled for long since `seen_ns`, by the host's clock: the wait has ended.
/// Lanes that gave up at a deadline poll no more, but their record counts.
bool Observers::is_over(Word seen_ns) const {
  return !lanes_gave_up_ && HostMemory::now_ns() >= seen_ns + wait_over_ns;
}

Observers::Progress Observers::progress(Word& from, Word known) {
  Progress now = progress_of_lanes(from, known);
  const Bootstrap* const bootstrap = state_.rendezvous.bootstrap();
  if (now.running.ticket != 0 || bootstrap == nullptr) return now;
  const Bootstrap::Step step = bootstrap->current_step();
  if (step.number == 0) return now;
  now.running.ticket = step_bit | step.number;
  now.moved = step.progress + 1;
  return now;
}

Observers::Progress Observers::progress_of_lanes(Word& from, Word known) {
  Progress now;
  if (!recorder_) return now;
  if (state_.device.gpu) {
    const WaitRecord& waits = state_.device.gpu->watched().waits;
    // First the time, since `status` reads both in the other order.
    if (const Word seen_ns = HostMemory::load_relaxed(&waits.seen_ns); seen_ns != seen_ns_) {
      seen_since_ns_ = HostMemory::now_ns();
      seen_ns_ = seen_ns;
    }
    if (HostMemory::load_relaxed(&waits.peer) == 0) return now;
    now.running = recorder_->find(HostMemory::load_relaxed(&waits.ticket));
    // Lanes of several channels write in turns. The highest step shows progress.
    now.moved = HostMemory::load_relaxed(&waits.step) + 1;
    return now;
  }
  now.running = recorder_->oldest_running(from);
  if (now.running.ticket == 0 || now.running.ticket != known) return now;
  now.moved = 1;
  const auto lock = lock_compositions();
  for (const Connections* one : compositions_) {
    if (one->number() != now.running.composition) continue;
    for (const WireSteps& wire : one->steps()) now.moved += wire.filled + wire.drained;
  }
  return now;
}

namespace {
/// True if the peers in the status of another rank are ranks.
bool names_ranks(const RankStatus& status, int ranks) {
  const auto is_peer = [ranks](int peer) { return peer >= -1 && peer < ranks; };
  return is_peer(status.waits.peer) &&
         std::all_of(status.steps.begin(), status.steps.end(),
                     [&](const WireSteps& of) { return is_peer(of.peer); });
}
}  // namespace

Report Observers::report(double limit_s) {
  const int ranks = state_.identity.ranks();
  std::vector<RankStatus> all(static_cast<std::size_t>(ranks));
  if (state_.rendezvous.bootstrap() == nullptr) {
    all[0] = status();
    return diagnose(std::move(all), 0);
  }
  const auto reported = state_.rendezvous.bootstrap()->rank_statuses(limit_s);
  if (reported[std::size_t(state_.identity.rank())].empty()) return {};  // it ends or fails
  const auto& peers = state_.identity.peers();
  for (int rank = 0; rank < ranks; ++rank) {
    const auto r = std::size_t(rank);
    const bool fits = unpack(without_health(reported[r]), all[r]);
    if (fits && all[r].rank == rank && names_ranks(all[r], ranks)) continue;
    all[r] = {};
    all[r].rank = rank;
    if (r < peers.size()) all[r].host = peers[r].host;  // empty if creation failed
  }
  return detail::diagnose(std::move(all), state_.identity.rank(), state_.status.departed());
}

Error Observers::overdue(Error error) {
  // Another rank may have found out first, and its error has come meanwhile.
  if (auto well = state_.status.result(); !well) return std::move(well).error();
  if (state_.rendezvous.bootstrap() == nullptr) return error;
  lanes_gave_up_ = true;
  const FailureWatch::Pause until_known{state_};
  const Report found = report(report_limit_s);
  if (found.ranks.empty()) {  // the failure that ended the report has been sent to all ranks
    auto well = state_.status.result();
    return well ? error : std::move(well).error();
  }
  if (found.behind >= 0) {
    error.peer = found.behind;
    error.what = error.code == Errc::aborted ? fmt::format("{} ({})", error.what, found.summary)
                                             : fmt::format("{}: {}", found.summary, error.what);
  }
  add_shortage(error, found);
  // All ranks log the report, possibly to one file. Only one of them logs it as a warning.
  const auto first = std::find_if(found.ranks.begin(), found.ranks.end(),
                                  [](const RankStatus& of) { return of.answered; });
  log_report(found, first->rank == state_.identity.rank() ? LogLevel::warn : LogLevel::info);
  return error;
}

void Observers::log_report(const Report& report, LogLevel level) {
  const std::string text = report.text();
  for (std::string_view rest = text; !rest.empty();) {
    const auto line = rest.substr(0, rest.find('\n'));
    log(level, LogPart::coll, "{}", line);
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
  }
}

}  // namespace ccl::detail
