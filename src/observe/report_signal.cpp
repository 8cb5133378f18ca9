#include "comm/observe/report_signal.hpp"

#include <ccl/comm/log.hpp>
#include <ccl/detail/runtime/settings.hpp>

#include <atomic>
#include <csignal>
#include <vector>

#include "base/exceptions.hpp"
#include "base/thread.hpp"
#include "comm/observe/failure_dump.hpp"
#include "comm/observe/ticker_list.hpp"
#include "comm/state.hpp"
#include "net/engine.hpp"

namespace ccl::detail {
namespace {

std::atomic<int> signals{0};  // received; the handler only counts them
static_assert(std::atomic<int>::is_always_lock_free);

void count_signal(int) {
  signals.fetch_add(1, std::memory_order_relaxed);
}

// Communicators that log reports. The engine's mutex guards it.
struct Listeners {
  TickerList<std::weak_ptr<CommState>> states;
  int seen = 0;                     // signals that have been answered
  std::atomic<bool> writes{false};  // a thread logs reports: the next ones come afterwards
};
Listeners& listeners() {
  static auto& all = *new Listeners;
  return all;
}

void log_reports(const std::vector<std::weak_ptr<CommState>>& states) {
  for (const auto& weak : states) {
    const auto state = weak.lock();
    if (!state || !state->was_up()) continue;
    const LogRank named{state->identity.rank()};
    Observers::log_report(state->observers.report(report_limit_s), LogLevel::warn);
    dump_on_signal(*state);
  }
}

bool tick() {
  Listeners& all = listeners();
  // Locks no pointer, because the last owner must not be destroyed under the engine's mutex.
  std::erase_if(all.states.items, [](const auto& state) { return state.expired(); });
  const int now = signals.load(std::memory_order_relaxed);
  if (now != all.seen && !all.writes.exchange(true)) {
    all.seen = now;
    // The engine's thread receives the answers, so another thread waits for them.
    const auto write = [](const auto& states) {
      if (!completes([&] { log_reports(states); })) lose_log_line();
      listeners().writes = false;
    };
    auto thread = own_thread("reports", write, all.states.items);
    if (thread) {
      thread->detach();
    } else {
      all.writes = false;
      log_warn(LogPart::init, "{}", thread.error().what);
    }
  }
  return all.states.goes_on();
}

Result<void> listen_to(int signal) {
  for (const int fault : {SIGILL, SIGTRAP, SIGBUS, SIGFPE, SIGSEGV, SIGSYS}) {
    if (signal != fault) continue;
    return fail(Errc::bad_setting,
                fmt::format("CCL_REPORT_SIGNAL={} cannot be (a crash raises that signal, and would "
                            "no more end the process); set it to {} (SIGUSR1), say",
                            signal, SIGUSR1));
  }
  struct sigaction before {};
  ::sigaction(signal, nullptr, &before);
  if (before.sa_handler == count_signal) return {};
  if (before.sa_handler != SIG_DFL) {
    log_warn(LogPart::init,
             "no reports on signal {} (the program handles it itself); set "
             "CCL_REPORT_SIGNAL to another one",
             signal);
    return {};
  }
  struct sigaction ours {};
  ours.sa_handler = count_signal;
  ours.sa_flags = SA_RESTART;
  if (::sigaction(signal, &ours, nullptr) == 0) return {};
  return fail(Errc::bad_setting,
              fmt::format("CCL_REPORT_SIGNAL={} cannot be (no process can handle that signal); set "
                          "it to {} (SIGUSR1), say",
                          signal, SIGUSR1));
}
}  // namespace

Result<void> report_on_signal(std::weak_ptr<CommState> state) {
  CCL_TRY(const Index signal, setting_integer("REPORT_SIGNAL"));
  if (signal == 0) return {};
  CCL_CHECK(listen_to(int(signal)));
  const std::lock_guard lock{net::Engine::get().mutex()};
  Listeners& all = listeners();
  if (!all.states.is_ticking()) {
    all.seen = signals.load(std::memory_order_relaxed);
    all.writes = false;  // a forked child has no such thread
  }
  return all.states.add(std::move(state), tick, net::Engine::min_period);
}

}  // namespace ccl::detail
