#pragma once

#include <ccl/detail/base/status.hpp>
#include <ccl/detail/runtime/proxy_helper.hpp>
#include <ccl/transport/proxy_task.hpp>
#include <ccl/types/result.hpp>
#include <ccl/types/word.hpp>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

struct pollfd;

namespace ccl::detail {

class LaneRunners;
class LibraryCalls;
struct LaneScope;
class TransferLog;

/// Engine that moves the bytes of proxied wires. Threads that wait inside a collective run rounds
/// themselves (`help`). The engine's thread moves what they leave, and sleeps while they run.
///
/// The idle thread blocks until a socket is ready or a thread calls `wake`. Polled tasks are polled
/// for some hundred microseconds after the last movement or call, then less often, at least once
/// per millisecond. No step waits for a lock.
///
/// If calls follow each other without a pause, a helper may defer the last steps of its call. All
/// deferred steps must be of tasks with `gathers`. The next call moves them when it waits.
///
/// If no call follows, the thread moves the steps after 100 to 200 us. Helpers then send at once
/// for some dozens of calls.
///
/// A task that throws, without memory for example, is dropped and fails the communicator.
///
/// A task may call another library, whose functions may never return. Only threads of ccl make
/// these calls: the engine's, and those of `run_lanes`. A thread whose call does not return within
/// its limit is left behind with the task, and the engine goes on without both.
class ProxyEngine {
 public:
  struct Counters {
    Word steps, bytes;  // moved by all tasks
    Word rounds;        // rounds over all tasks by the engine's thread
    Word helped;        // rounds over all tasks by helpers
    Word sleeps;        // times that the engine's thread blocked
    int tasks;
    Word registered_bytes;  // of `bytes`, moved by NICs from or to registered buffers
  };

  /// `status` is the communicator's, and may be null.
  explicit ProxyEngine(Status* status = nullptr);
  /// Waits at most 1 s for tasks that are ending and drops the others. Waits another second for a
  /// call to another library.
  ~ProxyEngine();
  ProxyEngine(const ProxyEngine&) = delete;
  ProxyEngine& operator=(const ProxyEngine&) = delete;

  /// Adds a task after the round in progress. The first task starts the thread.
  Result<void> add(std::shared_ptr<ProxyTask> task);

  /// Runs one round over all tasks, unless another thread runs one. Returns true if something
  /// moved. Any thread.
  ///
  /// A thread whose calls have moved nothing for a while blocks here until a task can move. The
  /// block lasts at most a quarter of its wait, and at most 1 ms. It does not block if it
  /// `looks_elsewhere`, because no task then wakes it.
  bool help(bool looks_elsewhere = false) noexcept;

  /// Returns the n-th further engine, created on first use and destroyed with this one. Its thread
  /// has no helpers. Transports use it to spread one connection over threads.
  ProxyEngine& further(int n);

  /// Returns the record through which tasks call other libraries. Makes it first, and lets the
  /// network thread watch it.
  Result<std::shared_ptr<LibraryCalls>> library_calls();
  /// Sets the operation limit in seconds; 0: none. Calls may take half of it. Set it before the
  /// first task is added.
  void limit_calls(double operation_limit_s) { operation_limit_s_ = operation_limit_s; }
  double operation_limit_s() const { return operation_limit_s_; }
  /// Waits until no task calls another library, for at most `limit_s`. Returns false if a call has
  /// not returned. See `LibraryCalls::set_ended`.
  bool await_library_calls(double limit_s);
  /// Runs the CPU lanes of a launch, `lanes(of)`, so that the threads that wait in them help this
  /// engine. If tasks call other libraries, the lanes run on a thread that can be left behind.
  /// Returns when they have ended, or when the others have ended and one is left behind.
  void run_lanes(void (*lanes)(void* of), void* of, bool looks_elsewhere);

  /// Sets the CPUs on which the threads of this engine and of further ones run; empty: any. Call it
  /// before the first task is added.
  void run_on(std::vector<int> cpus) { cpus_ = std::move(cpus); }
  /// Lets the tasks of this engine and of further ones note the latest `size` steps; 0: none. Call
  /// it before the first task is added.
  void note_transfers(int size);
  /// Returns the log that tasks write; null: nothing is noted.
  TransferLog* transfers() const { return transfers_.get(); }

  /// Makes the engine's thread check its tasks. Threads that post steps or give credit without
  /// helping call it.
  void wake();
  /// Wakes the engine's thread and the threads of further engines with polled tasks. Launches call
  /// it.
  void wake_polled();

  /// Moves what can move. Returns what the networks do not have yet (`ProxyTask::undelivered`) of
  /// all tasks, here and on further engines; 0: they have all. Waits for no lock: tasks that
  /// another thread moves count as 1. A round may take 2 s for the cause of the end of a
  /// connection, which comes through the network thread. So the caller must not hold the lock of
  /// that thread. Any thread.
  Word drain() noexcept;

  using Helper = ProxyHelper;

  Counters counters() const;

  /// Turns of the engine's thread and its helpers so far, of all kinds. `wanted`: a thread runs a
  /// round or has asked for one, or the engine's thread does not sleep. If it is wanted and the
  /// turns do not change for seconds, its thread does not run, or a task blocks.
  struct Activity {
    Word turns = 0;
    bool wanted = false;
  };
  /// Returns the activity of this engine. Never blocks.
  Activity activity() const;
  /// Returns the activity of the n-th further engine, or nothing if there are fewer. Never blocks:
  /// returns nothing while another engine starts.
  std::optional<Activity> further_activity(std::size_t n);
  /// Bytes moved by this engine and the further ones. Never blocks.
  Word bytes_moved();

 private:
  friend class ProxyHelper;
  /// Lock of `busy_`; empty if it is not free.
  using RoundLock = std::unique_ptr<ProxyEngine, void (*)(ProxyEngine*)>;
  RoundLock round_lock() {
    return {try_acquire() ? this : nullptr, [](ProxyEngine* of) { of->release(); }};
  }
  /// Empty if one call to another library has kept the lock for `call_limit_s`.
  RoundLock await_round_lock(double call_limit_s);
  // Caller holds `busy_`; `left_over_only`: the tasks that `rest` marked.
  bool round(bool left_over_only = false);
  ProxyTask::Progress progress_of(ProxyTask& task);
  /// Fails the communicator with the exception that is being handled.
  void fail_thrown() noexcept;
  void listen();
  void watch(ProxyTask& task);
  /// Work left in all tasks. `left_over`: steps to move that no descriptor reports. `polled`: a
  /// task is polled.
  struct Rest {
    bool left_over = false, polled = false;
    bool gathers = true;  // true for all work that is left over
  };
  Rest rest() const;  // marks tasks; caller holds `busy_`
  void run();
  void move_tasks();  // until the engine stops
  void stop();        // ends the thread
  Result<void> start_thread();
  void await_thread();  // until it has ended or is left behind
  using Time = std::chrono::steady_clock::time_point;
  void finish(Time end);        // gives tasks that are ending their last turns
  void finish_apart(Time end);  // the same, on a thread that can be left behind
  // By any thread, which holds the mutex of `calls_`.
  void look_at_calls();
  void leave_behind(LaneScope* lanes, const char* function, double seconds);
  bool any_ending() const;
  bool help_once(bool looks_elsewhere);
  bool wants_calls() const;  // a task that calls libraries could move; caller holds `busy_`
  void end_calls();          // no thread looks at them any more
  void await_no_access();    // to registered buffers, after a failure; at most some seconds
  bool sleep(bool for_tasks, long timeout_us, long polled_us = -1);
  bool defers(const Rest& rest);  // at the end of a helper's call; caller holds `busy_`
  bool guard();
  void idle_wait(RoundLock lock, double waited_us);  // releases `busy_` before it waits
  bool try_acquire() { return !busy_.exchange(true, std::memory_order_acquire); }
  void release() { busy_.store(false, std::memory_order_release); }

  // Written by the thread that ran the last round.
  std::atomic<Word> steps_{0}, bytes_{0}, registered_bytes_{0};
  std::atomic<Word> rounds_{0}, helped_{0}, sleeps_{0};
  std::atomic<int> task_count_{0};
  std::atomic<int> idle_waiters_{0};  // number of blocked helpers

  std::atomic<Word> deferred_ns_{
      0};  // time at which helpers began to defer steps; 0: no deferred steps
  std::atomic<bool> guarded_{false};  // the thread checks that deferred steps are sent
  // End of the last helper's call; average time between two ends.
  Word last_call_ns_ = 0, call_ns_ = 0;
  std::unique_ptr<TransferLog> transfers_;  // of the communicator's own engine

  alignas(128) std::atomic<bool> busy_{false};  // a thread runs a round or changes `tasks_`
  std::vector<std::shared_ptr<ProxyTask>> tasks_;
  std::size_t first_ = 0;  // first task of the next round
  ProxyCounters moved_;
  const ProxyTask* current_ = nullptr;  // the task whose turn it is
  bool skipped_ = false;                // the last round left out tasks that call libraries
  // With many tasks, one system call per round reports the ready descriptors. Tasks are found by
  // descriptor number, because a descriptor that a forked process holds may be reported after its
  // task has ended.
  int watch_ = -1;  // epoll
  bool listening_ = false;
  std::vector<ProxyTask*> by_fd_;
  std::vector<pollfd> watched_;  // of the sleeping thread

  alignas(128) std::atomic<bool> asleep_{false};  // the thread is in poll, or just before it
  std::atomic<bool> called_{false};               // a thread has asked for a check
  std::atomic<bool> stop_{false};
  std::atomic<bool> polled_{false};  // a task was polled at the thread's last check
  Status* const status_;
  std::vector<int> cpus_;
  std::mutex start_mutex_;
  std::vector<std::unique_ptr<ProxyEngine>> further_;
  std::shared_ptr<LibraryCalls> calls_;  // made once
  std::atomic<LibraryCalls*> calls_now_{nullptr};
  std::unique_ptr<LaneRunners> lane_runners_;
  double operation_limit_s_ = 0;
  std::atomic<bool> ended_{false};  // the thread has left `move_tasks`
  std::thread thread_;
  int doorbell_ = -1;  // eventfd
};

}  // namespace ccl::detail
