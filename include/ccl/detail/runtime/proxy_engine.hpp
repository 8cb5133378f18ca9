#pragma once

#include <ccl/detail/lanes/host_memory.hpp>
#include <ccl/transport/proxy_task.hpp>
#include <ccl/types/result.hpp>
#include <ccl/types/word.hpp>

#include <atomic>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace ccl::detail {

/// Moves the bytes of proxied wires. Threads that wait inside a collective do so themselves (they
/// `help`); one thread of the engine does what they leave, and sleeps while they are at it. Idle,
/// it blocks until a socket or someone calls. Where tasks are polled, it goes on looking for some
/// hundred microseconds after the last movement or call, then ever more rarely, at least once a
/// millisecond. No step ever waits for a lock.
///
/// Where calls follow each other without a pause, a helper leaves what its call has posted last, if
/// that `gathers`, to the next one, which moves it when it waits for something, were it a free
/// slot. The thread looks meanwhile whether there is a next one: if not, it moves what was put off
/// itself, one or two hundred microseconds late, and helpers send at once for some dozens of calls.
class ProxyEngine {
 public:
  struct Counters {
    Word steps, bytes;  // moved by all tasks
    Word rounds;        // over all tasks, by the engine's thread
    Word helped;        // the same, by helpers
    Word sleeps;        // times that the engine's thread blocked
    int tasks;
  };

  ProxyEngine() = default;
  /// Lets tasks that end by themselves do so, for at most a second; drops the others.
  ~ProxyEngine();
  ProxyEngine(const ProxyEngine&) = delete;
  ProxyEngine& operator=(const ProxyEngine&) = delete;

  /// The first task starts the thread. Waits for the round in progress.
  Result<void> add(std::shared_ptr<ProxyTask> task);

  /// One turn of every task, unless another thread is at it. True if something moved. Any thread.
  /// Who has helped for a while without any movement blocks here until a task can move, for at most
  /// a quarter of the time that it has waited so far, and a millisecond; not if it
  /// `looks_elsewhere`, too, where no task tells it of what comes.
  bool help(bool looks_elsewhere = false);

  /// The n-th further engine, with a thread of its own that nobody helps; made when first asked
  /// for, gone with this one. For transports that spread one connection over threads.
  ProxyEngine& further(int n);

  /// Makes the engine's thread look. For whoever posts or gives credit without helping.
  void wake();
  /// The same, and the threads of further engines with tasks that are polled. For launches.
  void wake_polled();

  /// While it lives, its thread helps whenever it waits (`HostMemory::pause`). What the thread
  /// leaves untransmitted, the engine's thread finishes. `looks_elsewhere`: some of what it waits
  /// for is not the engine's to bring, so that it must not block on the engine's tasks.
  class Helper {
   public:
    explicit Helper(ProxyEngine& engine, bool looks_elsewhere = false);
    ~Helper();
    Helper(const Helper&) = delete;
    Helper& operator=(const Helper&) = delete;

   private:
    ProxyEngine& engine_;
    detail::IdleHook before_;
  };

  Counters counters() const;

 private:
  bool round(bool left_over_only = false);  // with `busy_` held; as `rest` has marked them
  void listen();
  void watch(ProxyTask& task);
  /// Of all tasks: something is to be moved that no descriptor tells of; one of them is polled.
  struct Rest {
    bool left_over = false, polled = false;
    bool gathers = true;  // all that is left over
  };
  Rest rest() const;  // with `busy_` held; marks tasks
  void run();
  bool sleep(bool for_tasks, long timeout_us, long polled_us = -1);
  bool defers(const Rest& rest);  // with `busy_` held, at the end of a helper's call
  bool guard();
  void idle_wait(double waited_us);  // with `busy_` held, which it gives up
  void acquire();
  bool try_acquire() { return !busy_.exchange(true, std::memory_order_acquire); }
  void release() { busy_.store(false, std::memory_order_release); }

  // Written by whoever made the last round.
  std::atomic<Word> steps_{0}, bytes_{0}, rounds_{0}, helped_{0}, sleeps_{0};
  std::atomic<int> task_count_{0};
  std::atomic<int> idle_waiters_{0};  // helpers

  std::atomic<Word> deferred_ns_{
      0};  // when helpers began to put off what they sent; 0: they do not
  std::atomic<bool> guarded_{false};     // the thread looks whether it is sent
  Word last_call_ns_ = 0, call_ns_ = 0;  // when a helper's call ended; how far apart they end

  alignas(128) std::atomic<bool> busy_{false};  // someone makes a round, or changes `tasks_`
  std::vector<std::shared_ptr<ProxyTask>> tasks_;
  std::size_t first_ = 0;  // whose turn comes first in the next round
  ProxyCounters moved_;
  // Where tasks are many, one system call a round says whose descriptors are ready. By number of
  // the descriptor, since one that a forked process holds is heard of after its task's end.
  int watch_ = -1;  // epoll
  bool listening_ = false;
  std::vector<ProxyTask*> by_fd_;

  alignas(128) std::atomic<bool> asleep_{false};  // the thread is in poll, or just before it
  std::atomic<bool> called_{false};               // someone wants it to look
  std::atomic<bool> stop_{false};
  std::atomic<bool> polled_{false};  // one of the tasks was, when the thread looked last
  std::mutex start_mutex_;
  std::vector<std::unique_ptr<ProxyEngine>> further_;
  std::thread thread_;
  int doorbell_ = -1;  // eventfd
};

}  // namespace ccl::detail
