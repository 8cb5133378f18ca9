#pragma once

#include <memory>
#include <utility>

namespace ccl::detail {

/// Shared pointer of a handle; copies share one `State`. It is never null: moved-from and empty
/// handles hold `moved_from()`, one state for all of them.
template <class State, std::shared_ptr<State> (*moved_from)() noexcept>
class Handle {
 public:
  Handle() noexcept : state_{moved_from()} {}
  explicit Handle(std::shared_ptr<State> state) noexcept : state_{std::move(state)} {}
  Handle(const Handle&) = default;
  Handle& operator=(const Handle&) = default;
  Handle(Handle&& from) noexcept : state_{std::exchange(from.state_, moved_from())} {}
  Handle& operator=(Handle&& from) noexcept {
    if (this != &from) state_ = std::exchange(from.state_, moved_from());
    return *this;
  }

  State& operator*() const { return *state_; }
  State* operator->() const { return state_.get(); }
  /// Converts to a pointer that keeps the state longer than the handle.
  operator const std::shared_ptr<State>&() const { return state_; }

 private:
  std::shared_ptr<State> state_;
};

}  // namespace ccl::detail
