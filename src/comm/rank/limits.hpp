#pragma once

#include <ccl/detail/base/selection.hpp>
#include <ccl/types/result.hpp>
#include <ccl/types/word.hpp>

#include <atomic>

namespace ccl::detail {

class Identity;

/// Deadlines, memory budget and channel bounds of a communicator. Creation sets all but `used`.
struct CommLimits {
  bool check = false;          // compare the arguments of every call between ranks
  double timeout_s = 0;        // of a wait without progress; 0: no limit
  double init_timeout_s = 60;  // of creation
  Index budget = 0;            // bytes of wires and scratch
  ChannelBounds bounds;
  bool implicit_launch_order = false;  // see `Config`
  int cluster_blocks = 1;              // see `Config`; 1: launches have no clusters
  std::atomic<Index> used{0};          // bytes of the budget

  /// Takes each value from the configuration, or from the settings if it is not configured.
  /// Also sets the device and the budget of the configuration. Fails with `Errc::bad_setting`.
  Result<void> resolve(Identity& identity);

 private:
  Result<void> check_values(const Identity& identity) const;
};

}  // namespace ccl::detail
