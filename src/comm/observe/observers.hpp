#pragma once

#include <ccl/comm/log.hpp>
#include <ccl/comm/report.hpp>
#include <ccl/detail/runtime/flight_recorder.hpp>
#include <ccl/types/result.hpp>

#include <atomic>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "comm/observe/call_counters.hpp"
#include "comm/observe/comm_events.hpp"

namespace ccl::detail {

struct CommState;
class Connections;
struct WindowState;

constexpr double report_limit_s = 2;    // for ranks to answer a request for a report
constexpr int reported_operations = 8;  // completed operations in the status of a rank

/// Flight recorder, live compositions and live windows of a communicator, for its reports.
class Observers {
 public:
  explicit Observers(CommState& state) : state_{state} {}

  /// Null in a communicator of one rank.
  FlightRecorder* recorder() const { return recorder_.get(); }
  /// Creates the recorder for `size` operations.
  void start_recorder(int size) { recorder_ = std::make_unique<FlightRecorder>(size); }

  CallCounters& counters() { return counters_; }
  const CallCounters& counters() const { return counters_; }
  /// Steps of the communicator's life that the health service reports.
  struct Life {
    std::atomic<bool> is_up{false}, finalize_called{false};
  };
  Life& life() { return life_; }
  const Life& life() const { return life_; }
  CommEvents& events() { return events_; }

  void add(Connections* made);
  void remove(Connections* gone);
  /// The lock must be held while `compositions` is in use.
  std::unique_lock<std::mutex> lock_compositions() { return std::unique_lock{compositions_mutex_}; }
  const std::vector<Connections*>& compositions() const { return compositions_; }

  void add(WindowState* made);
  void remove(WindowState* gone);
  /// The lock must be held while `windows` or the mappings of a window are in use.
  std::unique_lock<std::mutex> lock_windows() { return std::unique_lock{windows_mutex_}; }
  const std::vector<WindowState*>& windows() const { return windows_; }
  /// Number of windows that all ranks have created and not all have closed, and that may hold
  /// receive buffers: they reach all ranks, and the program made them. A rank that drops its handle
  /// still counts the window, so all ranks have the same number.
  int open_windows() const { return open_windows_.load(std::memory_order_relaxed); }
  void open_window(Word number);
  void close_window(Word number);
  /// Returns the numbers of these windows, in order of creation.
  std::vector<Word> open_window_numbers();

  /// Operation in which this rank's lanes are, and how far they are.
  struct Progress {
    FlightRecorder::Running running;  // ticket 0: none, or the lanes of a GPU do not wait
    Word moved = 0;                   // increases with the progress of `running`
  };
  /// Bit of a ticket that is the number of a call of all ranks, such as `finalize`.
  static constexpr Word step_bit = Word{1} << 62;
  /// Returns the progress of the oldest operation that runs. If none runs, it is that of the call
  /// of all ranks in which this one is. `from` is that of `FlightRecorder::oldest_running`. Steps
  /// are read only if it is still the operation `known`, so that quick operations cost nothing.
  /// Makes no CUDA call. The caller holds the engine's mutex.
  Progress progress(Word& from, Word known);
  /// Status of this rank, with at most `ended` operations that have ended. Any thread; takes short
  /// locks only.
  RankStatus status(int ended = reported_operations);
  static constexpr int all_operations = std::numeric_limits<int>::max();
  /// Statuses of all ranks that answer within `limit_s` seconds, and the diagnosis.
  Report report(double limit_s);
  /// Asks all ranks for a status, logs the report, and returns `error` with the diagnosis added.
  /// `error` describes a wait without progress, and its peer is the rank that is waited for.
  Error overdue(Error error);
  static void log_report(const Report& report, LogLevel level);

  /// Folder for flight records; empty: none. Set during creation; a thread that writes holds
  /// `dump_mutex`.
  const std::string& dump_folder() const { return dump_folder_; }
  void set_dump_folder(std::string folder) { dump_folder_ = std::move(folder); }
  /// True once the record of the failure is written.
  bool dumped() const { return dumped_.load(std::memory_order_acquire); }
  void set_dumped() { dumped_.store(true, std::memory_order_release); }
  /// Held by a thread that writes a record.
  std::mutex& dump_mutex() { return dump_mutex_; }

 private:
  Progress progress_of_lanes(Word& from, Word known);
  bool is_over(Word seen_ns) const;

  CommState& state_;
  std::unique_ptr<FlightRecorder> recorder_;
  CallCounters counters_;
  Life life_;
  CommEvents events_;
  std::mutex compositions_mutex_;
  std::vector<Connections*> compositions_;
  std::mutex windows_mutex_;
  std::vector<WindowState*> windows_;
  std::vector<Word> open_numbers_;  // guarded by `windows_mutex_`
  std::string dump_folder_;
  std::mutex dump_mutex_;
  // `WaitRecord::seen_ns` of a GPU at the last `progress`, and the time of the first that read it,
  // by the host's clock.
  std::atomic<Word> seen_ns_{0}, seen_since_ns_{0};
  std::atomic<bool> lanes_gave_up_{false};  // at a deadline; their record then stays
  std::atomic<bool> dumped_{false};
  std::atomic<int> open_windows_{0};
};

}  // namespace ccl::detail
