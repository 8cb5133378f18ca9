#include <ccl/detail/base/cpu.hpp>
#include <ccl/detail/runtime/flight_recorder.hpp>

#include <algorithm>
#include <chrono>
#include <cstring>

namespace ccl {

std::string_view name(OpState state) {
  constexpr std::string_view names[] = {"queued", "launched", "running", "done", "failed"};
  return names[int(state)];
}

namespace detail {
namespace {
template <class Clock>
Word ns_of() {
  return Word(std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch())
                  .count());
}
using Steady = std::chrono::steady_clock;
constexpr auto relaxed = std::memory_order_relaxed;

/// Adds to a counter whose changes a mutex guards.
void add(std::atomic<Word>& counter, Word more) {
  counter.store(counter.load(relaxed) + more, relaxed);
}
}  // namespace

// The recorder's mutex guards `op` and `on_host`. The thread that runs the operation writes the
// atomics without it.
struct FlightRecorder::Entry {
  std::atomic<Word> ticket{0};  // 0: never used
  Operation op;
  bool on_host = false;  // runs in its caller's thread, also where others are of a GPU
  std::atomic<OpState> state{OpState::queued};
  std::atomic<Word> queued{0}, started{0}, ended{0};  // in ticks
};

FlightRecorder::FlightRecorder(int size)
    : entries_{std::make_unique<Entry[]>(std::size_t(size))},
      size_{size},
      first_ticks_{cpu_ticks()},
      first_ns_{ns_of<Steady>()} {}
FlightRecorder::~FlightRecorder() = default;

/// Takes the entry of a call and counts it. The caller holds the mutex.
FlightRecorder::Entry& FlightRecorder::next_entry(const Tally& tally) {
  if (tally.calls != nullptr) {
    add(*tally.calls, 1);
    add(*tally.bytes, tally.more_bytes);
  }
  const Word ticket = ++tickets_;
  Entry& entry = entries_[ticket % Word(size_)];
  entry.ticket.store(ticket, relaxed);
  entry.on_host = false;
  return entry;
}

/// Numbers the operation of an entry unless it is point to point. The caller holds the mutex.
FlightRecorder::EntryId FlightRecorder::number(Entry& entry, bool point_to_point) {
  if (!point_to_point) {
    entry.op.number = collectives_.load(relaxed) + 1;
    collectives_.store(entry.op.number, relaxed);
  }
  entry.ended.store(0, relaxed);
  return {tickets_, entry.op.number};
}

FlightRecorder::EntryId FlightRecorder::note(const Operation& op, bool point_to_point,
                                             const Tally& tally) {
  const std::lock_guard lock{mutex_};
  Entry& entry = next_entry(tally);
  entry.op = op;
  entry.state.store(OpState::queued, relaxed);
  entry.queued.store(cpu_ticks(), relaxed);
  entry.started.store(0, relaxed);
  return number(entry, point_to_point);
}

FlightRecorder::EntryId FlightRecorder::note_running(const ShownName& name, const CallInfo& info,
                                                     bool point_to_point, const Tally& tally) {
  const Word now = cpu_ticks();
  const std::lock_guard lock{mutex_};
  Entry& entry = next_entry(tally);
  Operation& op = entry.op;
  op.number = 0;
  static_assert(sizeof op.what == sizeof name.text);
  std::memcpy(op.what, name.text, sizeof op.what);
  std::memcpy(op.type, info.type, sizeof op.type);
  std::memcpy(op.redop, info.redop, sizeof op.redop);
  op.count = info.count;
  op.root = info.root;
  op.composition = info.composition;
  op.call = info.call;
  entry.state.store(OpState::running, relaxed);
  entry.queued.store(now, relaxed);
  entry.started.store(now, relaxed);
  return number(entry, point_to_point);
}

void FlightRecorder::keep(Word ticket) {
  const std::lock_guard lock{mutex_};
  const Entry* const entry = entry_of(ticket);
  if (entry == nullptr) return;
  Operation& kept = kept_[ticket] = entry->op;
  kept.queued_ns = entry->queued.load(relaxed);  // in ticks, until it is read
  if (kept_.size() > max_kept) kept_.erase(kept_.begin());
}

void FlightRecorder::started(Word ticket) {
  Entry& entry = entries_[ticket % Word(size_)];
  if (ticket == 0 || entry.ticket.load(relaxed) != ticket) return;
  entry.started.store(cpu_ticks(), relaxed);
  entry.state.store(OpState::running, relaxed);
}

void FlightRecorder::started_on_host(Word ticket) {
  started(ticket);
  const std::lock_guard lock{mutex_};
  Entry& entry = entries_[ticket % Word(size_)];
  if (entry.ticket.load(relaxed) == ticket) entry.on_host = true;
}

Word FlightRecorder::ended(Word ticket, bool well, const EndTally& tally) {
  Entry& entry = entries_[ticket % Word(size_)];
  if (ticket == 0 || entry.ticket.load(relaxed) != ticket) return 0;
  const Word began = entry.started.load(relaxed), now = cpu_ticks();
  entry.ended.store(now, relaxed);
  entry.state.store(well ? OpState::done : OpState::failed, relaxed);
  const Word ticks = began != 0 && now > began ? now - began : 0;
  if (well && ticks != 0 && tally.calls != nullptr) {
    const std::lock_guard lock{mutex_};
    add(*tally.calls, 1);
    add(*tally.ticks, ticks);
  }
  return ticks;
}

std::vector<Operation> FlightRecorder::latest(int most) const {
  return collect(most, size_, [](const Entry& entry) { return entry.state.load(relaxed); });
}

std::vector<Operation> FlightRecorder::latest_on_device(int most, Word waiting) const {
  auto all = collect(most, most, [waiting](const Entry& entry) {
    const OpState state = entry.state.load(relaxed);
    if (state != OpState::running || entry.on_host) return state;
    const Word ticket = entry.ticket.load(relaxed);
    return ticket < waiting    ? OpState::done
           : ticket == waiting ? OpState::running
                               : OpState::launched;
  });
  const std::lock_guard lock{mutex_};
  if (waiting != 0 && waiting <= tickets_ && entry_of(waiting) == nullptr) {
    all.insert(all.begin(), overwritten(waiting));
  } else if (kept_.contains(waiting)) {  // a replay, and nobody knows since when
    for (Operation& op : all) {
      if (op.state == OpState::running) op.started_ns = 0;
    }
  }
  return all;
}

const FlightRecorder::Entry* FlightRecorder::entry_of(Word ticket) const {
  const Entry& entry = entries_[ticket % Word(size_)];
  return ticket != 0 && entry.ticket.load(relaxed) == ticket ? &entry : nullptr;
}

/// Operation that runs and is not in the ring any more. Nobody knows since when.
Operation FlightRecorder::overwritten(Word ticket) const {
  Operation op;
  const Now now = read_clocks();
  if (const auto kept = kept_.find(ticket); kept != kept_.end()) {
    op = kept->second;
    op.queued_ns = now.when(op.queued_ns);
  } else {
    // At the latest: it was called before all in the ring.
    const Entry& oldest = entries_[(tickets_ + 1) % Word(size_)];
    op.queued_ns = now.when(oldest.queued.load(relaxed));
    std::string_view{"an operation that left the flight recorder"}.copy(op.what,
                                                                        sizeof op.what - 1);
    op.count = -1;
    op.call = ticket;
  }
  op.state = OpState::running;
  return op;
}

FlightRecorder::Running FlightRecorder::oldest_running(Word& from) const {
  const std::lock_guard lock{mutex_};
  if (tickets_ > Word(size_)) from = std::max(from, tickets_ - Word(size_) + 1);
  Running messages;
  bool all_ended = true;
  for (Word ticket = from; ticket <= tickets_; ++ticket) {
    const Entry& entry = entries_[ticket % Word(size_)];
    const OpState state = entry.state.load(relaxed);
    if (state == OpState::running) {
      const Running running{ticket, entry.op.number, entry.op.composition};
      if (running.number != 0) return running;
      if (messages.ticket == 0) messages = running;
    }
    all_ended = all_ended && (state == OpState::done || state == OpState::failed);
    if (all_ended) from = ticket + 1;
  }
  return messages;
}

FlightRecorder::Running FlightRecorder::find(Word ticket) const {
  const std::lock_guard lock{mutex_};
  if (ticket == 0 || ticket > tickets_) return {};
  if (const Entry* const entry = entry_of(ticket)) {
    return {ticket, entry->op.number, entry->op.composition};
  }
  const Operation op = overwritten(ticket);
  return {ticket, op.number, op.composition};
}

template <class StateOf>
std::vector<Operation> FlightRecorder::collect(int max_ended, int max_others,
                                               StateOf state_of) const {
  std::vector<Operation> all;
  const std::lock_guard lock{mutex_};
  const Now now = read_clocks();
  const Word first = tickets_ > Word(size_) ? tickets_ - Word(size_) + 1 : 1;
  for (Word ticket = tickets_; ticket >= first; --ticket) {
    const Entry& entry = entries_[ticket % Word(size_)];
    const OpState state = state_of(entry);
    const bool ended = state == OpState::done || state == OpState::failed;
    if (--(ended ? max_ended : max_others) < 0 && state != OpState::running) continue;
    all.push_back(record_of(entry, state, now));
  }
  std::reverse(all.begin(), all.end());
  return all;
}

Operation FlightRecorder::record_of(const Entry& entry, OpState state, const Now& now) {
  Operation op = entry.op;
  op.state = state;
  op.queued_ns = now.when(entry.queued.load(relaxed));
  op.started_ns = now.when(entry.started.load(relaxed));
  op.ended_ns = now.when(entry.ended.load(relaxed));
  return op;
}

Word FlightRecorder::latest_ticket() const {
  const std::lock_guard lock{mutex_};
  return tickets_;
}

Word FlightRecorder::find_after(Word ticket, Operation& op) const {
  const std::string_view wanted{op.what};
  const std::lock_guard lock{mutex_};
  const Word first = tickets_ > Word(size_) ? tickets_ - Word(size_) : 0;
  for (Word at = std::max(first, ticket) + 1; at <= tickets_; ++at) {
    const Entry& entry = entries_[at % Word(size_)];
    const std::string_view what{entry.op.what};
    if (what.substr(0, what.find('/')) != wanted) continue;
    op = record_of(entry, entry.state.load(relaxed), read_clocks());
    return at;
  }
  return 0;
}

bool FlightRecorder::read(Word ticket, Operation& op) const {
  const std::lock_guard lock{mutex_};
  const Entry* const entry = entry_of(ticket);
  if (entry == nullptr) return false;
  op = record_of(*entry, entry->state.load(relaxed), read_clocks());
  return true;
}

FlightRecorder::Now FlightRecorder::read_clocks() const {
  Now now;
  now.ticks = cpu_ticks();
  now.ns_per_tick =
      double(ns_of<Steady>() - first_ns_) / std::max(1.0, double(now.ticks) - double(first_ticks_));
  now.system_ns = ns_of<std::chrono::system_clock>();
  return now;
}

Word FlightRecorder::Now::when(Word then) const {
  if (then == 0) return 0;
  // The tick counter of another core may be slightly ahead of the one read here.
  return then > ticks ? system_ns : system_ns - Word(double(ticks - then) * ns_per_tick);
}

}  // namespace detail
}  // namespace ccl
