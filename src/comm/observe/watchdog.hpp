#pragma once

#include <ccl/comm/report.hpp>
#include <ccl/types/result.hpp>

#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "comm/observe/stall_policy.hpp"

namespace ccl::detail {

struct CommState;

/// Looks at the operations of a communicator twice a second, in the network thread. If one makes no
/// progress for unusually long, it asks all ranks and logs who is late and why. Calls do nothing
/// for it.
class Watchdog {
 public:
  explicit Watchdog(CommState& state) : state_{state} {}
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// Starts, unless CCL_REPORT_STALL is 0. Called once, when the communicator has its recorder.
  Result<void> start();
  /// Ends. The state may be destroyed afterwards. Any thread, without the engine's mutex.
  void stop() noexcept;
  /// Returns the latest report that this rank has logged, or null. It is dropped when the
  /// operation goes on.
  std::shared_ptr<const Report> latest() const;

  // Called with the engine's mutex.
  /// Looks once.
  void look();
  /// Adds what only the watchdog knows to this rank's status.
  void describe(RankStatus& mine) const;
  /// Takes a status that has arrived from another rank.
  void on_status(std::span<const std::byte> status);

 private:
  struct ProxyTurns {
    Word turns = 0;
    double since_s = 0;  // since when it has been wanted without a turn; 0: it is not
  };
  void look_at_proxies(double now_s);
  void ask(double quiet_s);
  void answer(const Report& report, Word pause, double quiet_s);
  void no_answer() noexcept;
  bool another_leads(const Report& report) const;
  Word asks_about() const;
  Word pause_id() const;
  std::optional<OtherOperation> stalled_operation() const;
  bool is_only_rank_here() const;
  void set_report(std::shared_ptr<const Report> report);

  CommState& state_;
  // The engine's mutex guards these.
  std::optional<StallPolicy> policy_;
  Word from_ = 1;    // see `FlightRecorder::oldest_running`
  Word number_ = 0;  // of the operation that makes no progress
  std::vector<ProxyTurns> proxies_;
  double proxy_stuck_s_ = 0;

  mutable std::mutex report_mutex_;
  std::shared_ptr<const Report> report_;
};

}  // namespace ccl::detail
