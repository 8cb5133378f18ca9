#include "comm/edges/window_state.hpp"

#include <ccl/comm/window.hpp>

#include <utility>

#include "comm/state.hpp"

namespace ccl::detail {

WindowState::~WindowState() {
  CommState& state = *Access::state(comm);
  state.observers.remove(this);
  if (state.device.gpu && holds) state.device.order->retire(std::move(holds));
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

std::shared_ptr<const WindowState> find_window(CommState& state, const void* data, Index bytes) {
  const auto lock = state.observers.lock_windows();
  WindowState* const window = open_window(state, contains(data, bytes));
  return window == nullptr ? nullptr : window->weak_from_this().lock();
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
