#pragma once

#include <ccl/comm/report.hpp>

#include <atomic>

namespace ccl::detail {

struct CommState;

/// Events of a communicator that its hooks have received. Each comes once.
struct CommEvents {
  std::atomic<bool> created{false}, failed{false}, closed{false};
};

// Each notifies the hooks of `state`, if it has any. The caller holds no lock of the library.

void notify_created(CommState& state) noexcept;
void notify_stalled(CommState& state, const Report& report) noexcept;
/// Does nothing while the communicator is healthy.
void notify_failed(CommState& state) noexcept;
/// The communicator was finalized, or its last handle was destroyed.
void notify_closed(CommState& state) noexcept;

}  // namespace ccl::detail
