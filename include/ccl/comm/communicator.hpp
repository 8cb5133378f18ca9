#pragma once

#include <ccl/detail/base/handle.hpp>
#include <ccl/types/peer_info.hpp>
#include <ccl/comm/report.hpp>
#include <ccl/types/result.hpp>
#include <ccl/types/word.hpp>
#include <ccl/comm/unique_id.hpp>

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace ccl {
namespace detail {
struct CommState;
struct Access;
/// What handles stand on that were moved from: it is as if failed, with `Errc::invalid_usage`.
std::shared_ptr<CommState> moved_from() noexcept;
}  // namespace detail

/// How a communicator is to behave. What is not set is taken from the settings (docs/settings.md).
/// The same on all ranks, but for `name` and `device`.
struct Config {
  /// No GPU: data is in CPU memory.
  static constexpr int cpu = -1;
  /// In a program with device code (<ccl/ccl.cuh>), where there is a GPU: the device of the
  /// thread's CUDA context; without one the rank's own, counted on its host (`from_env`,
  /// `create_all`), or the first. Else `cpu`.
  static constexpr int automatic = -2;

  bool blocking = true;                  // false: create returns at once; see `Communicator::wait`
  std::optional<bool> check;             // compare every call's arguments between ranks (CCL_CHECK)
  std::optional<double> timeout_s;       // of a wait without progress; 0: for ever (CCL_TIMEOUT)
  std::optional<double> init_timeout_s;  // of creation (CCL_INIT_TIMEOUT)
  std::optional<Index> memory_budget_bytes;       // of wires and scratch (CCL_MEMORY_BUDGET)
  std::optional<int> channels;                    // of every composition; unset: the plan's choice
  std::optional<int> min_channels, max_channels;  // limits on that choice (CCL_MIN_CTAS, _MAX_CTAS)
  int device = automatic;                         // CUDA device
  std::string tune_file;                          // measurements to choose by (CCL_TUNE_FILE)
  std::string name;                               // for messages
};

/// What `Communicator::shrink` does to the communicator that it is called on.
enum class Shrink {
  keep_parent,  // nothing: where it was well it stays so, and its operations end by themselves
  abort_parent  // ends it on all its ranks, and with it operations that wait for an excluded one
};

/// A rank's membership in a group of ranks. A handle: copies share one state, which collectives
/// made from it keep alive. Calls that create something are collective: all ranks make them in the
/// same order. The last handle's end aborts locally and never blocks; `finalize` is the graceful
/// end. After a failure every call returns that failure: `shrink` it to the ranks that are left, or
/// make a new communicator. What was moved from holds nothing and is rank -1 of 0: calls through it
/// return `Errc::invalid_usage`, as do those of all handles of ccl that were moved from.
class Communicator {
 public:
  /// Rank `rank` of `ranks`, which all hold the same id (or ids: several roots, for speed at
  /// scale).
  static Result<Communicator> create(const UniqueId& id, int rank, int ranks, Config config = {});
  static Result<Communicator> create(std::span<const UniqueId> ids, int rank, int ranks,
                                     Config config = {});
  /// All ranks in this process; handle i is rank i. Each is to be used by a thread of its own.
  static Result<std::vector<Communicator>> create_all(int ranks, Config config = {});
  /// From what the launcher left in the environment: torchrun, Open MPI, MPICH, PMIx, Slurm; or a
  /// single rank if there is no launcher.
  static Result<Communicator> from_env(Config config = {});

  int rank() const;
  int ranks() const;
  int device() const;  // -1: CPU
  const std::string& name() const;
  /// What rank `rank`, from 0 to ranks() - 1, said of itself. Only of a communicator whose creation
  /// has ended; of others, nothing.
  const PeerInfo& peer(int rank) const;

  /// Different rings that the topology gave; channels take them in turn. None, and empty, where
  /// creation has not ended or has failed.
  int ring_count() const;
  /// All ranks in the order of a ring: those of a host stand together, however ranks are numbered.
  const std::vector<int>& ring(int channel) const;

  /// The ranks of one `color` become a communicator, ordered by `key`, then by rank. Collective. A
  /// negative color takes no part and gets nothing. A rank that does not come is an error after
  /// `config.init_timeout_s`, and this communicator then fails, too. It always blocks.
  Result<std::optional<Communicator>> split(int color, int key, Config config = {}) const;
  /// A communicator of all ranks but the `excluded` ones, in their order. All that stay call it and
  /// exclude the same (in any order, twice does no harm); the others take no part. It needs nothing
  /// but this communicator, well or failed, and always blocks. A rank that dies meanwhile, or that
  /// stays and does not come within `config.init_timeout_s`, is named as this communicator knows
  /// it; ranks that exclude others get a `mismatch` that says which. All that are left get an
  /// error, or all get the communicator. After an error they may call it again, with more excluded:
  /// keep the handle until then. The communicator may have failed by the time it is there, and is
  /// the one to shrink next. Several calls take turns, in the same order on all ranks.
  Result<Communicator> shrink(std::span<const int> excluded, Shrink parent = Shrink::keep_parent,
                              Config config = {}) const;
  /// Waits for an asynchronous creation. Its failure, if it failed.
  Result<void> wait() const;
  /// Whether all is well: `Errc::in_progress` while creation goes on, else the first failure.
  Result<void> status() const;
  /// Returns when all ranks have come here. `Config::timeout_s` is the limit, as of `finalize`.
  Result<void> barrier() const;
  /// The graceful end: waits for what this rank has called, on streams, too, and for all ranks,
  /// then closes connections. Later calls and replays of graphs are misuse. Called by a function
  /// that runs on a `HostStream`, it does not wait for what is queued.
  Result<void> finalize() const;
  /// What all ranks do and who is behind. Not collective: asks the others, who answer whatever they
  /// do, and takes at most two seconds. Any thread, at any time; empty while creation goes on or
  /// where it failed, after `finalize` and in a forked child.
  Report report() const;
  /// Ends everything that runs or waits, here and at all other ranks, in bounded time: at once, or,
  /// where operations run, after the two seconds that a report of who holds them up may take. So it
  /// does a `shrink` that this rank is in. Any thread. Nothing in a forked child.
  void abort(const std::string& why = "abort was called") const;

  Index memory_budget() const;  // bytes
  Index memory_used() const;    // bytes of wires and scratch that this rank has allocated

 private:
  friend struct detail::Access;
  explicit Communicator(std::shared_ptr<detail::CommState> state) : state_{std::move(state)} {}

  detail::Handle<detail::CommState, detail::moved_from> state_;
};

namespace detail {
/// Access to the state of a communicator, for the library itself.
struct Access {
  static const std::shared_ptr<CommState>& state(const Communicator& comm) { return comm.state_; }
  static Communicator communicator(std::shared_ptr<CommState> state) {
    return Communicator{std::move(state)};
  }
};
}  // namespace detail

}  // namespace ccl
