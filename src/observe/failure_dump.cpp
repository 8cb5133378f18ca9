#include "comm/failure_dump.hpp"

#include <ccl/comm/log.hpp>
#include <ccl/detail/runtime/settings.hpp>

#include <fmt/format.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/exceptions.hpp"
#include "base/thread.hpp"
#include "comm/state.hpp"
#include "dump/flight_dump.hpp"
#include "net/engine.hpp"
#include <unistd.h>

namespace ccl::detail {
namespace {

// Communicators whose failure the network thread looks for. A state leaves the list before it is
// destroyed, so the list needs no reference to it. The engine's mutex guards it.
struct Observed {
  std::vector<CommState*> states;
  int pid = 0;  // process whose engine calls `tick`; differs in a forked child
};
Observed& observed() {
  static auto& all = *new Observed;  // never destroyed: states may outlive static objects
  return all;
}

/// The disk may be slow, so another thread writes.
void write_apart(std::weak_ptr<CommState> weak) {
  const auto write = [](const std::weak_ptr<CommState>& of) {
    if (const auto state = of.lock()) dump_failure(*state);
  };
  auto thread = own_thread("a flight record", write, std::move(weak));
  if (thread) thread->detach();  // else the call that returns the failure writes
}

bool tick() {
  Observed& all = observed();
  for (CommState* const state : all.states) {
    if (!state->status.ok() && !state->observers.dumped()) write_apart(state->weak_from_this());
  }
  std::erase_if(all.states, [](const CommState* state) { return !state->status.ok(); });
  if (all.states.empty()) all.pid = 0;
  return !all.states.empty();
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
  return record;
}

Result<void> dump_on_failure(CommState& state) {
  CCL_TRY(std::string folder, setting_text("DUMP_DIR"));
  if (folder.empty()) return {};
  state.observers.set_dump_folder(std::move(folder));
  const std::lock_guard lock{net::Engine::get().mutex()};
  Observed& all = observed();
  if (all.pid != ::getpid()) {
    all.states.clear();
    CCL_CHECK(net::Engine::get().add_ticker(tick));
    all.pid = ::getpid();
  }
  all.states.push_back(&state);
  return {};
}

void dump_failure(CommState& state) noexcept {
  if (state.status.ok() || !state.observers.claims_dump()) return;
  if (!completes([&] { write_to(state.observers.dump_folder(), state); })) lose_log_line();
}

void dump_on_signal(CommState& state) {
  if (!state.observers.dump_folder().empty()) write_to(state.observers.dump_folder(), state);
}

void end_failure_dump(CommState& state) noexcept {
  if (state.observers.dump_folder().empty()) return;
  {
    const std::lock_guard lock{net::Engine::get().mutex()};
    std::erase(observed().states, &state);
  }
  dump_failure(state);
}

}  // namespace ccl::detail
