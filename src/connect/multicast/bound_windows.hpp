#pragma once

#include <ccl/transport/transport.hpp>

#include <array>
#include <atomic>
#include <string>
#include <vector>

#include "comm/edges/window_binder.hpp"
#include "comm/edges/window_state.hpp"
#include "comm/state.hpp"

namespace ccl::detail {

/// Windows of a communicator that multicast reaches: each by an object of the driver, or by a table
/// of the ranks' addresses where it is emulated. CPU ranks have one kind.
class BoundWindows final : public WindowBinder {
 public:
  explicit BoundWindows(CommState& state) : state_{state} {}

  /// Adds a kind of multicast, for all windows. Collective.
  Result<void> add(MulticastKind kind);
  Result<void> bind_open() override;
  void forget(Word number) override;

  /// Number of windows that this kind reaches and that are not closed. The same on all ranks.
  int count(MulticastKind kind) const { return counts_[std::size_t(kind)].load(); }
  /// Returns why this kind does not reach a window; empty if it does.
  std::string refusal(MulticastKind kind, Word number) const;

 private:
  struct Tried {
    MulticastKind kind;
    Word number;
    std::string refused;  // empty: bound
  };
  Result<void> bind(MulticastKind kind, Word number);
  /// Makes what lanes need to reach the window. Succeeds or fails on all ranks.
  Result<void> reach_by_table(const std::string& name, WindowState* window, BoundPart& part);
  Result<void> reach_by_switches(const std::string& name, WindowState* window, BoundPart& part);
  Result<void> check(const WindowState* window) const;

  CommState& state_;
  std::vector<MulticastKind> kinds_;
  std::vector<Tried> tried_;  // guarded by the lock of the windows
  std::array<std::atomic<int>, 3> counts_{};
};

}  // namespace ccl::detail
