#pragma once

#include <ccl/comm/communicator.hpp>
#include <ccl/detail/base/status.hpp>
#include <ccl/detail/runtime/proxy_engine.hpp>

#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "comm/creation.hpp"
#include "comm/level_cache.hpp"
#include "comm/observe/connection_counts.hpp"
#include "comm/observe/departure.hpp"
#include "comm/observe/failure_watch.hpp"
#include "comm/observe/observers.hpp"
#include "comm/observe/watchdog.hpp"
#include "comm/rank/device.hpp"
#include "comm/rank/identity.hpp"
#include "comm/rank/limits.hpp"
#include "comm/rendezvous.hpp"

namespace ccl::detail {

struct ReducingNetwork;
class WindowBinder;

/// State that all handles of one rank's communicator share.
struct CommState : std::enable_shared_from_this<CommState> {
  /// Makes the state of a rank. Its last owner ends it. If launches do not end, the state and its
  /// memory stay for them. A forked child leaves its copy alone.
  static std::shared_ptr<CommState> make(int rank, int ranks, Config config);
  CommState(int rank, int ranks, Config config) : identity{rank, ranks, std::move(config)} {}
  ~CommState();
  CommState(const CommState&) = delete;
  CommState& operator=(const CommState&) = delete;

  // Later members are destroyed first.
  Identity identity;
  CommLimits limits;
  Status status;
  Rendezvous rendezvous{*this};
  ProxyEngine proxy{&status};
  CommDevice device;
  Observers observers{*this};
  Watchdog watchdog{*this};
  FailureWatch failure_watch{*this};
  Departure departure{*this};
  LevelCache levels;
  Creation creation;
  // Memory and wires that kernels of peers may use after this rank has dropped its handle. Guarded
  // by the lock of the windows.
  std::vector<std::shared_ptr<void>> kept_for_peers{};
  ConnectionCounts connections{};
  // Closer of idle connections of src/connect, which alone knows the type. Null until a composition
  // needs it.
  std::shared_ptr<void> idle_closer{};
  // Lender of this rank's GPU memory of src/comm/edges; null if no rank needs loans.
  std::shared_ptr<void> gpu_lender{};
  // Binder of windows of src/connect. Null until a composition over multicast memory exists. Set
  // once, by a thread that creates; see `Rendezvous::lock`.
  std::shared_ptr<WindowBinder> window_binder{};
  // Opened by the first composition that needs it; see `join_network`. Read with the lock of
  // `rendezvous`, or after a composition has been made.
  std::shared_ptr<const ReducingNetwork> network{};
  std::atomic<bool> has_network{false};  // for any thread

  /// Adds the rank and the host of this communicator to `error`.
  Error annotate(Error error) const;
  /// Returns the first failure, annotated with this rank.
  /// `Errc::in_progress`: the communicator is still being created.
  /// `Errc::invalid_usage`: it was finalized, or this process is a fork of its own.
  Result<void> ready() { return is_usual() ? Result<void>{} : look_at_all(); }
  /// True if `ready` succeeds, which a call of CPU ranks that are well sees in a few loads.
  bool is_usual() const {
    return identity.is_own() && !creation.running() && !creation.failure() && !device.gpu &&
           !levels.exist() && status.ok() && !rendezvous.finalized();
  }
  /// True if the communicator was created and not finalized, even if it has failed since.
  bool was_up() const;
  /// Returns "rank 3 on node7", for messages about a lane that waits for this peer. A rank's wire
  /// to itself leads through a network that reduces.
  std::string awaited(int peer) const;
  /// Error of counts in memory that a kernel or a call found too large.
  Error overflow(const LaneFailure& found) const;
  /// Fails the communicator if a lane of a kernel has failed. Lanes may write `found` meanwhile.
  void look_at_lanes(LaneFailure& found);
  /// Blocks until all calls of this rank have completed, or returns the failure that ended them.
  /// `who` names the waiting function in the error.
  Result<void> await_calls(const char* who);

 private:
  Result<void> look_at_all();
  /// Ends the bootstrap, and the kernels that wait. Returns false if launches have not ended within
  /// CCL_TIMEOUT, or a minute without it.
  bool end();
};

/// Exchanges what each rank knows about its machine, and arranges all ranks. Collective.
Result<void> arrange_ranks(CommState& state);
/// Lets this rank ask others for memory of GPUs that its process does not see, and lend memory of
/// its own GPU if any of them sends over it to a NIC. After `arrange_ranks`.
Result<void> lend_gpus(CommState& state);
/// Tries the paths between the GPUs of each host that this process has not tried yet. Sets which
/// pairs of ranks address each other, and which pairs need a GPU between them. Collective.
Result<void> prove_paths(CommState& state);

}  // namespace ccl::detail
