#include "comm/observe/watchdog.hpp"

#include <ccl/comm/log.hpp>
#include <ccl/detail/lanes/host_memory.hpp>
#include <ccl/detail/runtime/connections.hpp>
#include <ccl/detail/runtime/settings.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/exceptions.hpp"
#include "base/report_text.hpp"
#include "base/thread.hpp"
#include "comm/observe/comm_events.hpp"
#include "comm/observe/health.hpp"
#include "comm/observe/ticker_list.hpp"
#include "comm/state.hpp"
#include "net/engine.hpp"

namespace ccl::detail {
namespace {

constexpr auto look_period = std::chrono::milliseconds{500};
constexpr double stuck_s = 2;             // without a turn of a proxy that has work
constexpr double suspended_s = 3;         // between two looks: the process did not run
constexpr double elsewhere_s = 1;         // without progress in another communicator
constexpr Word messages = Word{1} << 63;  // bit of `asks_about` that marks sends and receives

// The engine's mutex guards both.
double looked_s = 0;   // last look of this process; 0: none
double skipped_s = 0;  // for which it did not run, as a job that is suspended

double steady_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}
/// Seconds of a clock that stands still while the process does not run. The caller holds the
/// engine's mutex.
double now_s() {
  return steady_s() - skipped_s;
}

// A raw pointer is enough, because `stop` removes it.
TickerList<Watchdog*>& watchdogs() {
  static auto& of_process = *new TickerList<Watchdog*>;
  return of_process;
}

bool look_at_all() {
  const double now = steady_s();
  if (looked_s != 0 && now - looked_s > suspended_s) skipped_s += now - looked_s;
  looked_s = now;
  for (Watchdog* watchdog : watchdogs().items) watchdog->look();
  return watchdogs().goes_on();
}

/// True if two values of `RankStatus::asks_about` can have one cause. Calls of all ranks do.
bool same_pause(Word a, Word b) {
  return a == b || ((a | b) & messages) == 0;
}

}  // namespace

Result<void> Watchdog::start() {
  CCL_TRY(const double limit_s, setting_seconds("REPORT_STALL"));
  if (limit_s == 0) return {};
  const std::lock_guard lock{net::Engine::get().mutex()};
  if (!watchdogs().is_ticking()) looked_s = 0;
  CCL_CHECK(watchdogs().add(this, look_at_all, look_period));
  policy_.emplace(limit_s, state_.identity.rank(), state_.identity.ranks());
  return {};
}

void Watchdog::stop() noexcept {
  const std::lock_guard lock{net::Engine::get().mutex()};
  if (!policy_) return;  // it has not started, and there may be no memory for the list
  if (std::erase(watchdogs().items, this) == 0) return;
  policy_.reset();
  if (watchdogs().items.empty()) net::Engine::get().tick_soon();
}

std::shared_ptr<const Report> Watchdog::latest() const {
  const std::lock_guard lock{report_mutex_};
  return report_;
}

void Watchdog::set_report(std::shared_ptr<const Report> report) {
  const std::lock_guard lock{report_mutex_};
  report_ = std::move(report);
}

void Watchdog::look() {
  const double now = now_s();
  Observers::Progress at;
  if (state_.was_up() && state_.status.ok())
    at = state_.observers.progress(from_, policy_->ticket());
  look_at_proxies(now);
  const bool logged = policy_->has_logged();
  const double quiet_s = policy_->quiet_s(now);
  number_ = at.running.number;
  const bool asks = policy_->look(now, at.running.ticket, at.moved);
  if (logged && !policy_->has_logged()) {
    set_report({});
    const LogRank rank{state_.identity.rank()};
    log_info(LogPart::coll,
             "the operation goes on or has ended after {:.0f} s without progress "
             "({})",
             quiet_s, say(state_.identity));
  }
  if (asks) ask(policy_->quiet_s(now));
}

/// Records for how long each proxy has had work without a turn of its thread or a helper.
void Watchdog::look_at_proxies(double now) {
  proxy_stuck_s_ = 0;
  const auto look_at = [&](ProxyTurns& known, const ProxyEngine::Activity& activity) {
    const bool idles = !activity.wanted || activity.turns != known.turns;
    known.turns = activity.turns;
    if (idles) {
      known.since_s = 0;
    } else if (known.since_s == 0) {
      known.since_s = now;
    } else if (now - known.since_s >= stuck_s) {
      proxy_stuck_s_ = std::max(proxy_stuck_s_, now - known.since_s);
    }
  };
  if (proxies_.empty()) proxies_.resize(1);
  look_at(proxies_[0], state_.proxy.activity());
  for (std::size_t n = 0;; ++n) {
    const auto further = state_.proxy.further_activity(n);
    if (!further) return;
    if (proxies_.size() < n + 2) proxies_.resize(n + 2);
    look_at(proxies_[n + 1], *further);
  }
}

/// Asks all ranks in a thread of its own, because the calling thread receives the answers.
void Watchdog::ask(double quiet_s) {
  const auto body = [](const std::weak_ptr<CommState>& weak, Word pause, double quiet) {
    const auto state = weak.lock();
    if (!state) return;
    const LogRank rank{state->identity.rank()};
    const bool asked = completes([&] {
      log_info(LogPart::coll, "asks all ranks after {:.1f} s without progress ({})", quiet,
               say(state->identity));
      const Report report = state->was_up() ? state->observers.report(report_limit_s) : Report{};
      state->watchdog.answer(report, pause, quiet);
    });
    if (!asked) state->watchdog.no_answer();
  };
  auto thread =
      own_thread("the watchdog", body, state_.weak_from_this(), policy_->pause(), quiet_s);
  if (thread) return thread->detach();
  policy_->give_up(now_s());
}

/// True if another rank with a lower number asks about the pause, too. It logs the answer.
bool Watchdog::another_leads(const Report& report) const {
  const Word mine = asks_about();
  return std::ranges::any_of(report.ranks, [&](const RankStatus& of) {
    return of.rank < state_.identity.rank() && of.asks_about != 0 &&
           same_pause(of.asks_about, mine);
  });
}

void Watchdog::answer(const Report& report, Word pause, double quiet_s) {
  const bool healthy = state_.was_up() && state_.status.ok();
  std::unique_lock lock{net::Engine::get().mutex()};
  if (!policy_) return;
  const double now = now_s();
  if (!healthy || report.ranks.empty()) return policy_->give_up(now);
  // An operation that went on meanwhile needs no line.
  const auto at = state_.observers.progress(from_, policy_->ticket());
  (void)policy_->look(now, at.running.ticket, at.moved);
  if (policy_->pause() != pause || policy_->ticket() == 0) return policy_->drop();
  if (another_leads(report)) {
    policy_->give_up(now);
    return policy_->yield(now);
  }
  if (!policy_->judge(now, report)) return;
  set_report(std::make_shared<const Report>(report));
  lock.unlock();
  log_warn(LogPart::coll, "no progress for {:.0f} s: {} [{}, {}]", quiet_s, report.summary,
           name(report.cause), say(state_.identity));
  notify_stalled(state_, report);
}

void Watchdog::no_answer() noexcept {
  const std::lock_guard lock{net::Engine::get().mutex()};
  if (policy_) policy_->give_up(now_s());
  lose_log_line();
}

Word Watchdog::asks_about() const {
  return policy_ && policy_->leads() ? pause_id() : 0;
}

/// Names the pause to other ranks. Pauses of collectives, and of other calls of all ranks, can have
/// one cause.
Word Watchdog::pause_id() const {
  if (number_ != 0) return number_;
  const Word ticket = policy_->ticket();
  return (ticket & Observers::step_bit) != 0 ? ticket : messages | ticket;
}

void Watchdog::on_status(std::span<const std::byte> status) {
  if (!policy_ || policy_->ticket() == 0 || policy_->leads()) return;
  const Word theirs = detail::asks_about(without_health(status));
  if (theirs != 0 && ((theirs | pause_id()) & messages) == 0) policy_->yield(now_s());
}

void Watchdog::describe(RankStatus& mine) const {
  mine.asks_about = asks_about();
  mine.proxy_stuck_s = proxy_stuck_s_;
  // Another thread of the process may be another rank, whose operations say nothing about this one.
  if (!is_only_rank_here()) return;
  for (const Watchdog* other : watchdogs().items) {
    if (other == this || !other->is_only_rank_here()) continue;
    if (auto stalled = other->stalled_operation()) {
      mine.elsewhere = *std::move(stalled);
      return;
    }
  }
}

bool Watchdog::is_only_rank_here() const {
  const auto& peers = state_.identity.peers();
  const auto rank = std::size_t(state_.identity.rank());
  if (rank >= peers.size()) return false;
  const auto here = [&](const PeerInfo& peer) {
    return peer.pid == peers[rank].pid && peer.host_hash == peers[rank].host_hash;
  };
  return std::ranges::count_if(peers, here) == 1;
}

std::optional<OtherOperation> Watchdog::stalled_operation() const {
  if (!policy_ || policy_->quiet_s(now_s()) < elsewhere_s) return {};
  const RankStatus status = state_.observers.status();
  const Operation* const running = status.running();
  if (running == nullptr) return {};
  OtherOperation other;
  other.text = fmt::format("{} of {}", say_numbered(*running), say(state_.identity));
  const auto& peers = state_.identity.peers();
  if (waits_for_network(status)) {
    other.text += fmt::format(", where it waits for {}", say_awaited(status));
  } else if (status.waits.peer >= 0 && std::size_t(status.waits.peer) < peers.size()) {
    const PeerInfo& peer = peers[std::size_t(status.waits.peer)];
    other.peer_host = peer.host;
    other.peer_pid = peer.pid;
    other.text += fmt::format(", where it waits for rank {}", status.waits.peer);
  }
  return other;
}

}  // namespace ccl::detail
