#include "comm/observe/comm_events.hpp"

#include <ccl/comm/hooks.hpp>

#include <fmt/format.h>

#include <string>

#include "base/exceptions.hpp"
#include "comm/state.hpp"

namespace ccl::detail {
namespace {

/// Calls `notify(hooks, event)`. An event for which there is no memory is lost.
template <class Notify>
void notify_hooks(const CommState& state, Notify&& notify) noexcept {
  const Config& config = state.identity.config();
  if (config.hooks == nullptr) return;
  (void)completes([&] {
    const std::string id = fmt::format("{:016x}", state.identity.id());
    notify(*config.hooks, CommEvent{id, config.name, state.identity.rank(), state.identity.ranks(),
                                    config.device});
  });
}

bool is_open(CommState& state) {
  return state.observers.events().created && !state.observers.events().closed;
}

}  // namespace

void notify_created(CommState& state) noexcept {
  if (state.observers.events().created.exchange(true)) return;
  notify_hooks(state, [](const CommHooks& hooks, const CommEvent& event) { hooks.created(event); });
  notify_failed(state);  // nobody else does, if it has failed meanwhile
}

void notify_stalled(CommState& state, const Report& report) noexcept {
  if (!is_open(state)) return;
  notify_hooks(
      state, [&](const CommHooks& hooks, const CommEvent& event) { hooks.stalled(event, report); });
}

void notify_failed(CommState& state) noexcept {
  if (state.status.ok() || state.identity.config().hooks == nullptr || !is_open(state)) return;
  if (state.observers.events().failed.exchange(true)) return;
  notify_hooks(state, [&](const CommHooks& hooks, const CommEvent& event) {
    if (const auto well = state.status.result(); !well) {
      hooks.failed(event, state.annotate(well.error()));
    }
  });
}

void notify_closed(CommState& state) noexcept {
  if (!is_open(state) || state.observers.events().closed.exchange(true)) return;
  notify_hooks(state, [](const CommHooks& hooks, const CommEvent& event) { hooks.closed(event); });
}

}  // namespace ccl::detail
