#pragma once

#include <ccl/comm/config.hpp>
#include <ccl/comm/flight_record.hpp>
#include <ccl/comm/report.hpp>
#include <ccl/comm/unique_id.hpp>
#include <ccl/detail/base/handle.hpp>
#include <ccl/types/peer_info.hpp>
#include <ccl/types/result.hpp>
#include <ccl/types/word.hpp>

#include <initializer_list>
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
/// Returns the state of moved-from handles. It is failed with `Errc::invalid_usage`.
std::shared_ptr<CommState> moved_from();
}  // namespace detail

/// Effect of `Communicator::shrink` on its communicator.
enum class Shrink {
  keep_parent,  ///< none: a working parent stays usable, and its operations complete
  abort_parent  ///< aborts it on all its ranks, with operations that wait for an excluded rank
};

/// Membership of a rank in a group of ranks. It is a handle: copies share one state, and the
/// collectives made from it keep the state alive. Calls that create something are collective, in
/// the same order on all ranks.
///
/// The destructor of the last handle aborts locally and never blocks; `finalize` is the graceful
/// end. After a failure every call returns that failure: `shrink` the communicator to the surviving
/// ranks, or create another one. A moved-from handle is rank -1 of 0, and calls through it return
/// `Errc::invalid_usage`.
class Communicator {
 public:
  /// Creates rank `rank` of `ranks`. Collective; all ranks must hold the same id. Several ids stand
  /// for several roots, which speed up creation at scale. Fails with `Errc::timed_out` if a rank is
  /// missing after `config.init_timeout_s`.
  [[nodiscard]] static Result<Communicator> create(const UniqueId& id, int rank, int ranks,
                                                   Config config = {});
  [[nodiscard]] static Result<Communicator> create(std::span<const UniqueId> ids, int rank,
                                                   int ranks, Config config = {});
  /// Creates all ranks in this process; handle i is rank i. Each handle must be used by a thread of
  /// its own.
  [[nodiscard]] static Result<std::vector<Communicator>> create_all(int ranks, Config config = {});
  /// Creates the rank that the environment of the launcher describes: torchrun, Open MPI, MPICH,
  /// PMIx or Slurm. Without a launcher it creates a single rank. Collective.
  [[nodiscard]] static Result<Communicator> from_env(Config config = {});

  /// Returns this rank; -1 in a moved-from handle.
  int rank() const;
  /// Returns the number of ranks; 0 in a moved-from handle.
  int ranks() const;
  /// Returns the CUDA device; -1 on CPU.
  int device() const;
  /// Returns `Config::name`.
  const std::string& name() const;
  /// Returns the description of rank `rank`, from 0 to ranks() - 1. It is empty if creation is not
  /// complete or has failed.
  const PeerInfo& peer(int rank) const;

  /// Returns the number of different rings of the topology; channels use them in turn. It is 0, and
  /// `ring` is empty, if creation is not complete or has failed.
  int ring_count() const;
  /// Returns all ranks in the order of a ring. Ranks of a host are adjacent for any numbering.
  const std::vector<int>& ring(int channel) const;

  /// Creates a communicator of the ranks with the same `color`, ordered by `key`, then by rank.
  /// Collective, and always blocks. A rank with a negative color gets no communicator. A rank that
  /// is missing after `config.init_timeout_s` is an error, and this communicator then fails too.
  [[nodiscard]] Result<std::optional<Communicator>> split(int color, int key,
                                                          Config config = {}) const;
  /// Creates a communicator of all ranks except the `excluded` ones, in their order. All remaining
  /// ranks must call it with the same exclusions, in any order; the excluded ranks take no part. It
  /// works on a failed communicator too, and always blocks. Either all remaining ranks get the
  /// communicator, or all get an error:
  /// - `Errc::mismatch`, with the difference, if ranks exclude different ranks.
  /// - An error that names the rank in this communicator, if a remaining rank dies or does not call
  ///   within `config.init_timeout_s`.
  /// After an error the ranks may call it again with more exclusions, so the handle must be kept
  /// until then. The returned communicator can have failed already; it is the one to shrink next.
  /// Several calls run one after the other, and must have the same order on all ranks.
  [[nodiscard]] Result<Communicator> shrink(std::span<const int> excluded,
                                            Shrink parent = Shrink::keep_parent,
                                            Config config = {}) const;
  /// Creates the smaller communicator as above, for `shrink({rank})`.
  [[nodiscard]] Result<Communicator> shrink(std::initializer_list<int> excluded,
                                            Shrink parent = Shrink::keep_parent,
                                            Config config = {}) const {
    return shrink(std::span{excluded.begin(), excluded.size()}, parent, std::move(config));
  }
  /// Blocks until an asynchronous creation is complete. Returns its error if it failed.
  [[nodiscard]] Result<void> wait() const;
  /// Returns success, `Errc::in_progress` during creation, or the first failure.
  [[nodiscard]] Result<void> status() const;
  /// Blocks until all ranks have called it. Fails with `Errc::timed_out` after `Config::timeout_s`.
  [[nodiscard]] Result<void> barrier() const;
  /// Ends the communicator gracefully. Waits for this rank's calls, including those on streams, and
  /// for all ranks, then closes connections. Fails with `Errc::timed_out` after
  /// `Config::timeout_s`. Later calls and replays of graphs are errors. From a function that runs
  /// on a `HostStream` it does not wait for queued calls.
  [[nodiscard]] Result<void> finalize() const;
  /// Returns the state of all ranks, and the rank that is behind. Not collective: it queries the
  /// other ranks, which answer in any state, and takes at most 2 s. Any thread may call it at any
  /// time. It is empty during creation, after a failed creation or `finalize`, and in a forked
  /// child.
  Report report() const;
  /// Returns the latest report that this rank has logged because an operation makes no progress
  /// (CCL_REPORT_STALL). It is empty if there is none, if the operation goes on, or if another rank
  /// has logged it. Asks no rank. Any thread may call it at any time.
  Report stall() const;
  /// Returns the operations that this rank remembers, as `dump` writes them. Not collective. Any
  /// thread may call it at any time. It is empty during creation and in a forked child.
  FlightRecord flight_record() const;
  /// Writes the operations that this rank remembers to an existing folder, as two files:
  /// - `ccl_<id>_rank_<rank>`, which PyTorch's `torchfrtrace` reads, without groups of sends and
  ///   receives;
  /// - `ccl_<id>.<rank>.json`, which `read_flight_record` reads.
  ///
  /// `<id>` is `FlightRecord::communicator`. Not collective. Any thread may call it at any time.
  /// Fails with `Errc::system` if the folder cannot be written, and with `Errc::invalid_usage`
  /// during creation and in a forked child. A communicator of one rank remembers no operations.
  [[nodiscard]] Result<void> dump(const std::string& folder) const;
  /// Ends all running and waiting operations on all ranks in bounded time, including a `shrink` of
  /// this rank. It takes effect at once, or within 2 s if operations run, to report the rank that
  /// delays them. Any thread may call it. It does nothing in a forked child.
  void abort(const std::string& why = "abort was called") const;

  /// Returns the bytes of the memory budget.
  Index memory_budget() const;
  /// Returns the bytes of wires and scratch that this rank has allocated.
  Index memory_used() const;

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
