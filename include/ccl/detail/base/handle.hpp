#pragma once

#include <ccl/types/macros.hpp>

#include <memory>
#include <utility>

CCL_ANY_SPACE_BEGIN

namespace ccl::detail {

/// Shared pointer of a handle; copies share one `State`. It is never null: moved-from and empty
/// handles hold `moved_from()`, one state for all of them. Its first call makes that state, which
/// takes memory: a constructor calls it before any handle can be moved from.
template <class State, std::shared_ptr<State> (*moved_from)()>
class Handle {
 public:
  Handle() : state_{moved_from()} {}
  explicit Handle(std::shared_ptr<State> state) : state_{std::move(state)} {
    static_cast<void>(moved_from());
  }
  Handle(const Handle&) = default;
  Handle& operator=(const Handle&) = default;
  CCL_HOST_IN_HD Handle(Handle&& from) noexcept
      : state_{std::exchange(from.state_, moved_from())} {}
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

CCL_ANY_SPACE_END
