#include "comm/observe/failure_dump.hpp"

#include <ccl/comm/log.hpp>
#include <ccl/detail/runtime/settings.hpp>

#include <fmt/format.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/exceptions.hpp"
#include "base/thread.hpp"
#include "comm/observe/comm_events.hpp"
#include "comm/observe/lane_phases.hpp"
#include "comm/observe/ticker_list.hpp"
#include "comm/observe/transfers.hpp"
#include "comm/state.hpp"
#include "dump/flight_dump.hpp"
#include "net/engine.hpp"
#include <unistd.h>

namespace ccl::detail {
namespace {

// Communicators whose failure the network thread looks for. A state leaves the list before it is
// destroyed, so the list needs no reference to it. The engine's mutex guards it.
TickerList<CommState*>& observed() {
  static auto& all = *new TickerList<CommState*>;  // never destroyed: states outlive static objects
  return all;
}

/// Warns once in a process of a folder in which no record can be written: it is missed when a job
/// has failed.
void look_at(const std::string& folder) {
  static std::atomic<bool> warned{false};
  if (folder.empty() || ::access(folder.c_str(), W_OK | X_OK) == 0) return;
  const int code = errno;
  if (warned.exchange(true)) return;
  log_warn(LogPart::init, "a failure will leave no flight record in CCL_DUMP_DIR={} ({}); make it",
           folder, std::strerror(code));
}

/// The disk may be slow, and hooks too, so another thread serves them.
void record_apart(std::weak_ptr<CommState> weak) {
  const auto record = [](const std::weak_ptr<CommState>& of) {
    const auto state = of.lock();
    if (!state) return;
    notify_failed(*state);
    dump_failure(*state);
  };
  auto thread = own_thread("a failure", record, std::move(weak));
  if (thread) thread->detach();  // else the call that returns the failure does it
}

bool look_for_failures() {
  std::erase_if(observed().items, [](CommState* state) {
    if (state->status.ok()) return false;
    if (!state->observers.dumped() || state->identity.config().hooks != nullptr) {
      record_apart(state->weak_from_this());
    }
    return true;
  });
  return observed().goes_on();
}

/// Replaces what is not ASCII, because JSON and pickles hold valid UTF-8 only. The text keeps its
/// length.
template <class Text>
void make_ascii(Text& text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) >= 0x80) c = '?';
  }
}

void write_to(const std::string& folder, CommState& state) {
  const FlightRecord record = flight_record(state);
  const LogRank named{state.identity.rank()};
  if (auto done = write_flight_record(record, folder); !done) {
    log_warn(LogPart::init, "no flight record (CCL_DUMP_DIR={}): {}", folder, done.error().what);
    return;
  }
  log_info(LogPart::init, "the flight record is in {}", json_path(record, folder));
}

}  // namespace

FlightRecord flight_record(CommState& state) {
  FlightRecord record;
  record.communicator = fmt::format("{:016x}", state.identity.id());
  record.name = state.identity.config().name;
  record.ranks = state.identity.ranks();
  if (auto well = state.status.result(); !well) record.failure = well.error().message();
  record.status = state.observers.status(Observers::all_operations);
  AlignedPhases aligned = lane_phases(state);
  record.phases = std::move(aligned.phases);
  record.lane_clock_ns = aligned.clock_ns;
  record.transfers = transfers(state);
  make_ascii(record.name);
  make_ascii(record.failure);
  make_ascii(record.status.host);
  make_ascii(record.status.rendezvous);
  make_ascii(record.status.elsewhere.text);
  make_ascii(record.status.elsewhere.peer_host);
  for (Operation& op : record.status.operations) {
    make_ascii(op.what);
    make_ascii(op.type);
    make_ascii(op.redop);
  }
  for (Transfer& of : record.transfers) make_ascii(of.network);
  return record;
}

Result<void> observe_failure(CommState& state) {
  CCL_TRY(std::string folder, setting_text("DUMP_DIR"));
  look_at(folder);
  if (!(folder.empty() && state.identity.config().hooks == nullptr)) {
    const std::lock_guard lock{net::Engine::get().mutex()};
    CCL_CHECK(observed().add(&state, look_for_failures, net::Engine::min_period));
  }
  // Comes last: without it, the end of the state does not look for the list, which needs memory.
  state.observers.set_dump_folder(std::move(folder));
  return {};
}

void dump_failure(CommState& state) noexcept {
  Observers& observers = state.observers;
  if (state.status.ok() || observers.dumped()) return;
  // A second caller waits until the first has written.
  const std::lock_guard lock{observers.dump_mutex()};
  if (observers.dump_folder().empty() || observers.dumped()) return;
  if (!completes([&] { write_to(observers.dump_folder(), state); })) lose_log_line();
  observers.set_dumped();
}

void dump_on_signal(CommState& state) {
  Observers& observers = state.observers;
  const std::lock_guard lock{observers.dump_mutex()};
  // The record of a failure stays: it shows what ran then.
  if (observers.dump_folder().empty() || observers.dumped()) return;
  write_to(observers.dump_folder(), state);
}

namespace {
void end_observation(CommState& state) {
  const std::lock_guard lock{net::Engine::get().mutex()};
  std::erase(observed().items, &state);
}
}  // namespace

void end_observed_failure(CommState& state) noexcept {
  const bool has_hooks = state.identity.config().hooks != nullptr;
  if (!has_hooks && state.observers.dump_folder().empty()) return;
  end_observation(state);
  notify_failed(state);
  dump_failure(state);
}

void leave_dump_to_whole(CommState& level) {
  if (level.observers.dump_folder().empty()) return;
  end_observation(level);
  const std::lock_guard lock{level.observers.dump_mutex()};  // a failure may be written right now
  level.observers.set_dump_folder({});
}

}  // namespace ccl::detail
