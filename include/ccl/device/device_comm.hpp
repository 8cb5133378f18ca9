#pragma once

#include <ccl/comm/window.hpp>
#include <ccl/detail/base/handle.hpp>
#include <ccl/device/team.hpp>

#include <memory>
#include <utility>

namespace ccl {
namespace detail {
struct DeviceCommState;
}  // namespace detail

/// Right of the program's own kernels to address the ranks of a communicator. It is a handle:
/// copies share one state, which owns the memory of barriers, signals and packets. That memory is
/// not shared with the communicator's own calls, and does not count against its budget.
///
/// It must outlive this rank's kernels and graphs that use its team. Kernels of peers may still
/// write to the memory of a rank that drops its last handle without `close`, so that memory and the
/// wires to ranks of other hosts stay until the rank's communicator ends. Puts of those ranks to a
/// window that is closed by then are dropped. The communicator's failure, `abort` and deadline end
/// the waits of these kernels, too.
///
/// Kernels that wait for each other must run at the same time on all ranks:
/// - The blocks of a launch are resident at once; see `check_launch` of <ccl/device.cuh>.
/// - The launches of a team, and the communicator's own calls, are queued in the same order on all
///   ranks and on one stream. On several streams, what may run at once must fit the GPU together.
class DeviceComm {
 public:
  /// Creates the memory that `needs` describes. Collective, with equal requirements and the same
  /// window on all ranks; it succeeds on all or fails on all.
  /// - `Errc::invalid_argument`: a negative requirement, or a window that is closed or belongs to
  ///   another communicator.
  /// - `Errc::mismatch`: ranks with other requirements.
  /// - `Errc::not_supported`: more than `Team::max_ranks` ranks, or `ll128_bytes` where a path does
  ///   not carry lines of 128 bytes whole.
  ///
  /// If the window has `WindowReach::near`, kernels take `network_team()`, and their calls to ranks
  /// of other hosts go through the proxy.
  [[nodiscard]] static Result<DeviceComm> create(const Communicator& comm, const Window& window,
                                                 const DeviceRequirements& needs = {});

  /// Returns the argument of kernels on this rank; that of no rank in a moved-from handle.
  const Team& team() const;
  /// Returns the argument of kernels that also reach ranks of other hosts.
  const NetworkTeam& network_team() const;
  /// Returns the first failure of the communicator or of a kernel, or success. After a failure the
  /// communicator has failed on all ranks. A kernel's wrong call is `Errc::invalid_usage`.
  [[nodiscard]] Result<void> status() const;
  /// Fails with `Errc::invalid_argument` if a launch has other than 1 to
  /// `DeviceRequirements::blocks` blocks. `resident`: blocks of this kernel that the device runs at
  /// once, which the ranks on it share; -1: not checked.
  [[nodiscard]] Result<void> check_launch(int blocks, int resident = -1) const;

  /// Ends the right of all copies of the handle gracefully. Collective: returns when all ranks have
  /// called it and the messages to ranks of other hosts are delivered. This rank's kernels and
  /// graphs that use the team must have ended.
  [[nodiscard]] Result<void> close() const;

 private:
  explicit DeviceComm(std::shared_ptr<detail::DeviceCommState> state) : state_{std::move(state)} {}
  static std::shared_ptr<detail::DeviceCommState> moved_from();
  detail::Handle<detail::DeviceCommState, moved_from> state_;
};

}  // namespace ccl
