#include "comm/edges/window_state.hpp"

#include <algorithm>
#include <utility>

#include "comm/edges/window_binder.hpp"
#include "comm/state.hpp"

namespace ccl::detail {

WindowState::~WindowState() {
  CommState& state = *Access::state(comm);
  state.observers.remove(this);
  if (holds && !state.status.ok()) {  // a peer's kernel may still use what multicast has bound
    const auto lock = state.observers.lock_windows();
    for (BoundPart& part : holds->bound) state.kept_for_peers.push_back(std::move(part.owner));
    holds->bound.clear();
  }
  if (state.device.gpu && holds) state.device.order->retire(std::move(holds));
}

const WindowState& WindowState::of(const Window& window) {
  return *window.state_;
}

void WindowState::hold_no_buffers(const Window& window) {
  WindowState& state = *window.state_;
  if (!std::exchange(state.counted, false)) return;
  CommState& comm = *Access::state(state.comm);
  comm.observers.close_window(state.number);
  if (comm.window_binder) comm.window_binder->forget(state.number);
}

bool lies_in_window(const Communicator& comm, const void* data, Index bytes) {
  return bytes > 0 && window_around(*Access::state(comm), data, bytes).base != nullptr;
}

namespace {
/// Returns the open window for which `fits(window)` is true, or null. The caller holds the lock.
template <class F>
WindowState* open_window(const CommState& state, F fits) {
  for (WindowState* window : state.observers.windows()) {
    if (window->holds && fits(*window)) return window;
  }
  return nullptr;
}
auto contains(const void* data, Index bytes) {
  return [begin = static_cast<const std::byte*>(data), bytes](const WindowState& window) {
    return begin >= window.base && begin + bytes <= window.base + window.bytes;
  };
}
}  // namespace

WindowPlace place_in_window(CommState& state, const void* data, Index bytes) {
  WindowPlace found;  // outlives the lock: its end may be that of the window
  const auto lock = state.observers.lock_windows();
  if (WindowState* const window = open_window(state, contains(data, bytes))) {
    found.window = window->weak_from_this().lock();
    if (!found.window) return found;  // its last handle is being destroyed
    found.holds = window->holds;
    found.at = window->at;
    found.offset = static_cast<const std::byte*>(data) - window->base;
  }
  return found;
}

BoundWindow bound_window(CommState& state, MulticastKind kind, const void* data, Index bytes) {
  BoundWindow found;
  const auto lock = state.observers.lock_windows();
  const WindowState* const window = open_window(state, contains(data, bytes));
  if (window == nullptr) return found;
  found.number = window->number;
  found.offset = static_cast<const std::byte*>(data) - window->base;
  const auto& parts = window->holds->bound;
  const auto part = std::ranges::find(parts, kind, &BoundPart::kind);
  if (part == parts.end()) return found;
  found.part = *part;
  found.holds = window->holds;
  return found;
}

std::shared_ptr<WindowState> live_window(CommState& state, Word number) {
  const auto lock = state.observers.lock_windows();
  const auto is_it = [number](const WindowState& of) { return of.number == number; };
  WindowState* const window = open_window(state, is_it);
  return window == nullptr ? nullptr : window->weak_from_this().lock();
}

bool is_open_window(const Communicator& comm, const Window& window) {
  CommState& state = *Access::state(comm);
  const WindowState* const wanted = &WindowState::of(window);
  const auto lock = state.observers.lock_windows();
  return open_window(state, [&](const WindowState& of) { return &of == wanted; }) != nullptr;
}

WindowFacts window_around(CommState& state, const void* data, Index bytes) {
  const auto lock = state.observers.lock_windows();
  const WindowState* const window = open_window(state, contains(data, bytes));
  if (window == nullptr) return {};
  return {window->number, window->base, window->bytes};
}

WindowMapping window_mapping(CommState& state, Word number, int rank) {
  const auto lock = state.observers.lock_windows();
  const auto is_it = [number](const WindowState& of) { return of.number == number; };
  const WindowState* const window = open_window(state, is_it);
  if (window == nullptr) return {};
  return {window->holds, window->at[std::size_t(rank)]};
}

}  // namespace ccl::detail
