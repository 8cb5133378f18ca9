#pragma once

#include <ccl/detail/runtime/bootstrap.hpp>
#include <ccl/detail/base/selection.hpp>
#include <ccl/comm/communicator.hpp>
#include <ccl/detail/runtime/flight_recorder.hpp>
#include <ccl/comm/log.hpp>
#include <ccl/detail/runtime/proxy_engine.hpp>
#include <ccl/comm/report.hpp>
#include <ccl/detail/base/status.hpp>
#include <ccl/topo/arrange.hpp>

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/forks.hpp"
#include "gpu/order.hpp"

namespace ccl::detail {

class BufferRegistry;
struct Levels;
class Connections;
struct WindowState;

constexpr double report_limit_s = 2;  // for ranks to answer who asks for a report
constexpr int reported_operations = 8;    // that have ended, of each rank

/// What all handles of one rank's membership share.
struct CommState : std::enable_shared_from_this<CommState> {
  CommState(int my_rank, int rank_count, Config how)
      : rank{my_rank}, ranks{rank_count}, config{std::move(how)} {}
  ~CommState();
  CommState(const CommState&) = delete;
  CommState& operator=(const CommState&) = delete;

  int rank, ranks;
  Config config;
  Status status;
  const int process = forks_before();    // that it belongs to
  std::vector<PeerInfo> peers;           // one for each rank
  std::unique_ptr<Bootstrap> bootstrap;  // null in a communicator of one rank
  std::mutex bootstrap_mutex;            // one thread at a time
  ProxyEngine proxy;
  std::shared_ptr<Gpu> gpu;         // null on a CPU rank
  std::unique_ptr<GpuOrder> order;  // of its launches
  std::shared_ptr<BufferRegistry> registry;     // null until a composition wants them
  int ranks_on_gpu = 1;             // of this communicator, on the GPU that has most
  int max_blocks = 1;              // of a launch on a GPU; on all ranks alike, as channels are
  topo::Arrangement arrangement;    // of all ranks into rings and trees
  bool check = false;
  double timeout_s = 0;  // 0: no limit
  double init_timeout_s = 60;
  Index budget = 0;
  ChannelBounds bounds;
  std::atomic<Index> used{0};
  std::atomic<int> compositions{0};
  std::recursive_mutex compositions_mutex;  // see `creating_alone`
  std::unique_ptr<FlightRecorder> flight_recorder;         // null in a communicator of one rank
  std::mutex connections_mutex;                   // of `connections`: those that live, for diagnosis
  std::vector<Connections*> connections;
  std::mutex windows_mutex;  // of `windows`: those that live
  std::vector<std::weak_ptr<const WindowState>> windows;
  std::atomic<int> in_flight{0};  // calls on streams of CPU ranks that have not ended
  std::atomic<bool> finalized{false};
  std::mutex levels_mutex;                 // of `levels`: who fails may be any thread
  std::shared_ptr<const Levels> levels{};  // null until a composition wants them
  std::atomic<bool> has_levels{false};     // each call asks

  // Asynchronous creation.
  std::atomic<bool> creating{false};
  std::optional<Error> creation_failure;  // of an asynchronous creation, once `creating` is over
  std::mutex creation_mutex;
  std::condition_variable created;

  /// An error of this rank: says who and where.
  Error annotate(Error error) const;
  /// Whether this process made it, and was not forked from the one that did.
  bool is_own() const { return forks_before() == process; }
  /// The first failure, with this rank named; or in_progress, or misuse after finalize.
  Result<void> ready();
  /// Whether it is up, or was until it failed.
  bool was_up() const;
  /// What kernels have left: the first that gave up makes this communicator fail.
  void look_at_gpu();
  /// What a kernel or a call has found of counts that lay in memory.
  Error overflow(const LaneFailure& found) const;
  /// Fails this communicator and its levels here and tells the others.
  void fail_all(Error error);
  /// The error of ranks that were found to differ from `peer`, or from others: all ranks know it
  /// and come here before any of them leaves. With `bootstrap_mutex` held.
  Result<void> disagree(std::string what, int peer);
  std::shared_ptr<const Levels> current_levels();
  static void fail_levels(const Levels& parts, const Error& error);
  /// In the words and numbers of this communicator.
  static std::optional<Error> failure_of_levels(const Levels& parts);

  /// What this rank does at present. Any thread; takes short locks only.
  RankStatus rank_status();
  /// What all ranks do, as far as they answer within `limit_s`.
  Report report(double limit_s);
  /// What came of a meeting of all ranks that may take `timeout_s`: who has not come in that time
  /// has made the communicator fail.
  Result<void> met(Result<void> rendezvous);
  /// The same of a step in which all ranks create something: ranks that such a step leaves at its
  /// deadline have no later one in common, and all are to hear the same of it.
  Result<void> after_creation(Result<void> rendezvous);
  /// Returns when what this rank has called has ended, or with the failure that ended it.
  /// `who` waits: for the error.
  Result<void> await_calls(const char* who);
  /// After a deadline: names a rank that does not answer, the error's own peer first, and tells all
  /// of it. May take two seconds; without `bootstrap_mutex` or with it. The error as it was if all
  /// answer.
  Error without_answer(Error error);
  /// The error of a wait without progress, which `error` says in its own words; `peer` is who was
  /// waited for. Asks all ranks who is behind, and logs what they say.
  Error overdue(Error error);
  static void log_report(const Report& said, LogLevel level);
};

/// Looks at this machine, tells the others, and arranges all ranks. Collective.
Result<void> arrange_ranks(CommState& state);
/// Tries the paths between the GPUs of each host, those that this process has not tried yet, and
/// settles which pairs address each other, and which have a GPU between them. Collective.
Result<void> prove_paths(CommState& state);

}  // namespace ccl::detail
