#include <ccl/comm/window.hpp>
#include <ccl/detail/runtime/guarded.hpp>

#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "base/made_once.hpp"
#include "comm/edges/window_binder.hpp"
#include "comm/edges/window_creation.hpp"
#include "comm/edges/window_state.hpp"
#include "comm/state.hpp"

namespace ccl {
namespace detail {
namespace {

/// Waits for the thread of the buffer registry, which keeps mappings until no kernel gets their
/// addresses. It looks several times a second.
void await_last_owner(const std::shared_ptr<WindowState::Holds>& holds) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds{1};
  while (holds.use_count() > 1 && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
  }
}

}  // namespace
}  // namespace detail

Result<Window> Window::create(const Communicator& comm, void* data, Index bytes,
                              WindowReach reach) {
  return detail::guarded(comm, [&]() -> Result<Window> {
    CCL_TRY(auto state,
            detail::make_window(comm, static_cast<std::byte*>(data), bytes, reach, nullptr));
    return Window{std::move(state)};
  });
}

Result<Window> Window::create(const Communicator& comm, const SharedMemory& memory,
                              WindowReach reach) {
  return detail::guarded(comm, [&]() -> Result<Window> {
    CCL_TRY(auto state,
            detail::make_window(comm, memory.data(), memory.bytes(), reach, memory.block()));
    return Window{std::move(state)};
  });
}

Result<Window> detail::WindowState::create_in(const Communicator& comm, std::byte* data,
                                              Index bytes, std::shared_ptr<SharedBlock> block) {
  return guarded(comm, [&]() -> Result<Window> {
    CCL_TRY(auto state, make_window(comm, data, bytes, WindowReach::all, std::move(block)));
    return Window{std::move(state)};
  });
}

std::shared_ptr<detail::WindowState> Window::moved_from() {
  static constinit detail::MadeOnce<detail::WindowState> one;
  detail::WindowState& state = one.get([] {
    return std::make_unique<detail::WindowState>(
        detail::Access::communicator(detail::moved_from()));
  });
  return {std::shared_ptr<void>{}, &state};
}

Index Window::bytes() const {
  return state_->bytes;
}
int Window::rank() const {
  return state_->comm.rank();
}
int Window::ranks() const {
  return state_->comm.ranks();
}
std::byte* Window::at(int rank) const {
  const auto at = std::size_t(rank);
  return at < state_->at.size() ? state_->at[at] : nullptr;
}

Result<void> Window::close() const {
  return detail::guarded(state_->comm, [&]() -> Result<void> {
    detail::CommState& state = *detail::Access::state(state_->comm);
    std::shared_ptr<detail::WindowState::Holds> holds;
    bool was_open = false;
    {
      const auto lock = state.observers.lock_windows();
      holds = std::move(state_->holds);
      was_open = holds != nullptr;
      for (int p = 0; p < state.identity.ranks(); ++p) {
        if (p != state.identity.rank()) state_->at[std::size_t(p)] = nullptr;
      }
    }
    if (auto ended = state.await_calls("a window's close"); !ended) {
      const auto lock = state.observers.lock_windows();
      state_->holds = std::move(holds);  // until the last handle is destroyed
      return ended;
    }
    detail::await_last_owner(holds);
    holds.reset();
    if (state.identity.ranks() > 1) {
      const auto lock = state.rendezvous.lock();
      std::vector<Word> closed(std::size_t(state.identity.ranks()));
      CCL_CHECK(state.rendezvous.after_rendezvous(state.rendezvous.bootstrap()->all_gather(
          closed.data(), Index{sizeof(Word)}, state.limits.timeout_s,
          {"the end of", detail::window_name})));
    }
    if (!was_open || !state_->counted) return {};
    state.observers.close_window(state_->number);
    if (state.window_binder) state.window_binder->forget(state_->number);
    return {};
  });
}

}  // namespace ccl
