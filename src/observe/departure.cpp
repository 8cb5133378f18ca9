#include "comm/observe/departure.hpp"

#include <ccl/detail/lanes/host_memory.hpp>
#include <ccl/detail/runtime/connections.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <new>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "base/exceptions.hpp"
#include "base/forks.hpp"
#include "base/thread.hpp"
#include "comm/state.hpp"
#include "net/engine.hpp"
#include "proxy/library_calls.hpp"

namespace ccl::detail {
namespace {

using Clock = std::chrono::steady_clock;

// Limits at the exit of a process. The wait for networks ends after `quiet_limit` in which nothing
// moves: a rank that does not receive may be late for ever. Other ranks close their connections
// within milliseconds, unless they are stopped. `exit_limit` is for all communicators together.
constexpr std::chrono::seconds quiet_limit{2}, close_limit{2}, exit_limit{10};
constexpr std::chrono::microseconds short_while{200};
constexpr std::chrono::seconds longest_call{1};  // of a plug-in's function
// A lane that has waited so long for a departed rank waits for what never comes: its data had
// reached this host before the departure did.
constexpr std::chrono::milliseconds hopeless{900};
constexpr std::size_t max_seen = 64;  // waits that are remembered

/// Communicators of this process that have a bootstrap. The engine's mutex guards `all`.
struct Live {
  std::vector<CommState*> all;
  std::atomic<int> process{-1};  // by `forks_before`: a forked child has none of them
};
/// Never destroyed, and made without an allocation, because an end that has no memory calls it.
Live& live() {
  alignas(Live) static unsigned char memory[sizeof(Live)];
  static auto& of_process = *new (memory) Live;
  return of_process;
}

std::atomic<bool> exit_has_begun{false};

/// Returns the end of `exit_limit`, which begins with the first call.
Clock::time_point end_of_exit() {
  static const Clock::time_point end = Clock::now() + exit_limit;
  return end;
}

/// Locks the engine's mutex. Fails at `until`: the thread that exits may hold it.
bool lock_until(net::Lock& lock, Clock::time_point until) {
  while (!lock.try_lock()) {
    if (Clock::now() > until) return false;
    std::this_thread::sleep_for(short_while);
  }
  return true;
}

/// Calls `done` with the lock until it returns true, or until `until`.
template <class Done>
void wait_with(net::Lock& lock, Clock::time_point until, Done done) {
  while (!done() && Clock::now() < until) {
    lock.unlock();
    std::this_thread::sleep_for(short_while);
    if (!lock_until(lock, until)) return;
  }
}

bool is_up(const CommState& state) {
  return state.was_up() && state.status.ok() && state.rendezvous.bootstrap() != nullptr;
}

/// Lets calls on streams of CPU ranks end, and the proxies send what lanes have posted. Launches on
/// GPUs are not waited for: another thread may be blocked in the driver until peers come, and a
/// question about them would wait for it. Without the engine's mutex: the cause of the end
/// of another rank's connection comes through the network thread.
void drain_all(std::span<CommState* const> states, Clock::time_point until) {
  Word least = ~Word{0}, moved = 0;
  auto quiet_since = Clock::now();
  while (Clock::now() < until) {
    Word left = 0, bytes = 0;
    for (CommState* const state : states) {
      if (!is_up(*state)) continue;
      left += state->proxy.drain() + Word(state->device.in_flight.load());
      bytes += state->proxy.bytes_moved();
    }
    if (left == 0) return;
    const auto now = Clock::now();
    if (left < least || bytes != moved) quiet_since = now;
    least = std::min(least, left);
    moved = bytes;
    if (now - quiet_since > quiet_limit) return;
    std::this_thread::sleep_for(short_while);
  }
}

/// The caller keeps the states.
void depart(std::span<CommState* const> states) {
  const auto end = end_of_exit();
  drain_all(states, end);
  const auto until = std::min(Clock::now() + close_limit, end + close_limit);
  net::Lock lock{net::Engine::get().mutex(), std::defer_lock};
  if (!lock_until(lock, until)) return;
  for (CommState* const state : states) {
    if (is_up(*state)) state->rendezvous.bootstrap()->depart(lock);
  }
  wait_with(lock, until, [&] {
    return std::ranges::none_of(states, [&](CommState* state) {
      const Bootstrap* const of = state->rendezvous.bootstrap();
      return of != nullptr && of->is_draining(lock);
    });
  });
}

/// Ends the calls to plug-ins, whose libraries are destroyed with the process's static objects,
/// after this.
void end_library_calls(std::span<const std::shared_ptr<CommState>> all) {
  LibraryCalls::set_ended(true);
  const auto end = Clock::now() + longest_call;
  for (const auto& state : all) {
    const std::chrono::duration<double> left = end - Clock::now();
    (void)state->proxy.await_library_calls(std::max(left.count(), 0.0));
  }
}

/// True in a thread that would wait for itself, and in a forked child.
bool may_not_depart() {
  return net::Engine::in_own_thread() || live().process.load() != forks_before();
}

void depart_all() {
  if (may_not_depart()) return;
  std::vector<std::shared_ptr<CommState>> kept;  // outlive the lock, as the end of a state takes it
  std::vector<CommState*> states;
  {
    net::Lock lock{net::Engine::get().mutex(), std::defer_lock};
    if (!lock_until(lock, Clock::now() + close_limit)) return;
    for (CommState* const one : live().all) {
      auto state = one->weak_from_this().lock();
      if (state == nullptr) continue;
      const bool departs = is_up(*state) && !state->departure.is_left_to_end();
      if (departs) states.push_back(state.get());
      kept.push_back(std::move(state));
    }
  }
  if (!states.empty()) depart(states);
  end_library_calls(kept);
}

void at_exit() {
  exit_has_begun.store(true);
  this_thread_facts = {};  // a functor's exit: this thread ends the process, so it is not left
  (void)completes(depart_all);
  LibraryCalls::set_ended(true);
}

}  // namespace

void Departure::begin_exit() noexcept {
  exit_has_begun.store(true);
}

void Departure::start() {
  // First of all, so that it runs last: until then the program may end its communicators.
  static const int registered = std::atexit(at_exit);
  (void)registered;
  const std::lock_guard lock{net::Engine::get().mutex()};
  const int process = forks_before();
  if (live().process.exchange(process) != process) live().all.clear();
  live().all.push_back(&state_);
  started_ = true;
}

void Departure::note_use() noexcept {
  if (used_.load(std::memory_order_relaxed) || used_.exchange(true)) return;
  (void)std::atexit([] { begin_exit(); });  // without memory, an earlier registration stays
}

void Departure::stop() noexcept {
  if (!started_) return;
  if (exit_has_begun.load() && is_up(state_) && !may_not_depart()) {
    CommState* const self = &state_;
    (void)completes([&] { depart({&self, 1}); });
  }
  const std::lock_guard lock{net::Engine::get().mutex()};
  std::erase(live().all, &state_);
}

void Departure::drain() noexcept {
  CommState* const self = &state_;
  (void)completes([&] { drain_all({&self, 1}, Clock::now() + exit_limit); });
}

void Departure::watch(const WaitRecord& waits) {
  const std::lock_guard lock{programs_mutex_};
  programs_.push_back(&waits);
}

void Departure::forget(const WaitRecord& waits) noexcept {
  const std::lock_guard lock{programs_mutex_};
  std::erase(programs_, &waits);
}

void Departure::note(const WaitRecord& waits, std::vector<Seen>& seen) const {
  seen.push_back({&waits, int(HostMemory::load_relaxed(&waits.peer)) - 1,
                  HostMemory::load_relaxed(&waits.step), HostMemory::load_relaxed(&waits.ticket),
                  HostMemory::load_relaxed(&waits.seen_ns)});
}

/// Returns the records of all lanes of this rank, also of those that do not wait.
std::vector<Departure::Seen> Departure::waits() {
  std::vector<Seen> seen;
  {
    const std::lock_guard lock{programs_mutex_};
    for (const WaitRecord* const one : programs_) note(*one, seen);
  }
  if (state_.device.gpu) {
    note(state_.device.gpu->watched().waits, seen);
    note(state_.device.gpu->watched().program_waits, seen);
    return seen;
  }
  const auto lock = state_.observers.lock_compositions();
  for (const Connections* one : state_.observers.compositions()) {
    if (const WaitRecord* const of = one->calls().watch.waits; of != nullptr) note(*of, seen);
  }
  return seen;
}

/// Returns a number of turns of the proxies, or 0 if none of them has anything to do.
Word Departure::turns() const {
  auto of = state_.proxy.activity();
  for (std::size_t n = 0; const auto further = state_.proxy.further_activity(n); ++n) {
    of.turns += further->turns;
    of.wanted = of.wanted || further->wanted;
  }
  return of.wanted ? of.turns : 0;
}

/// Returns the departed rank that a lane waits for, or -1. A wait for this rank itself is one for a
/// network that reduces, which needs all ranks.
int Departure::departed_of(const Seen& wait) const {
  const bool by_network = state_.has_network && wait.peer == state_.identity.rank();
  if (by_network) return state_.status.departed().front();
  return wait.peer >= 0 && state_.status.has_departed(wait.peer) ? wait.peer : -1;
}

/// True if the same wait goes on, its lane has polled since, and so has the proxy that would bring
/// what it waits for.
bool Departure::is_hopeless(const Seen& before, const Seen& now) const {
  if (before.at != now.at || before.peer != now.peer || before.step != now.step) return false;
  if (before.ticket != now.ticket || before.seen_ns == now.seen_ns) return false;
  if (now.since - before.since < hopeless) return false;
  return now.turns == 0 || before.turns == 0 || now.turns - before.turns > 1;
}

void Departure::look() noexcept {
  if (!state_.status.any_departed() || !state_.was_up()) return;
  Bootstrap* const bootstrap = state_.rendezvous.bootstrap();
  if (bootstrap == nullptr) return;
  const net::Lock& lock = net::Engine::get().callback_lock();
  bootstrap->join_staying(lock);
  if (!state_.status.ok()) return;
  (void)completes([&] {
    auto now = waits();
    // Lanes of one record wait in turns, so a wait may not be there at each look.
    std::erase_if(seen_, [&](const Seen& before) {
      return std::ranges::none_of(
          now, [&](const Seen& one) { return one.at == before.at && one.ticket == before.ticket; });
    });
    for (Seen& one : now) {
      const int departed = departed_of(one);
      if (departed < 0) continue;
      one.since = Clock::now();
      one.turns = turns();
      const auto same = [&](const Seen& before) { return is_hopeless(before, one); };
      if (std::ranges::any_of(seen_, same)) {
        bootstrap->lose_departed(lock, departed);
        return;
      }
      const bool known = std::ranges::any_of(seen_, [&](const Seen& before) {
        return before.at == one.at && before.peer == one.peer && before.step == one.step;
      });
      if (!known && seen_.size() < max_seen) seen_.push_back(one);
    }
  });
}

}  // namespace ccl::detail
