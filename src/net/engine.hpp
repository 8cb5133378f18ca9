#pragma once

#include <ccl/types/result.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <semaphore>
#include <thread>
#include <vector>

struct epoll_event;

namespace ccl::detail::net {

/// Owner of a file descriptor that the engine watches. The engine holds its mutex in all calls.
class Handler {
 public:
  virtual ~Handler() = default;
  virtual int fd() const = 0;
  virtual void ready(std::uint32_t events) = 0;  // EPOLLIN, EPOLLOUT ...
  virtual void flush() {}                        // after `flush_soon`, at the end of the round
  virtual void forget() = 0;                     // in a forked child: closes and does nothing else
  /// Ends what the handler serves, after an exception in one of its calls: without memory, say.
  virtual void broke(int os_code) = 0;

 private:
  friend class Engine;
  std::uint64_t id_ = 0;  // 0: not watched
};

/// Lock of the engine's mutex. A `const Lock&` parameter shows that the caller holds the mutex.
using Lock = std::unique_lock<std::mutex>;

/// Network thread of a process. It serves all listening sockets, roots and bootstraps, starts with
/// the first handler and ends with the last. One mutex guards the state of all of them; user
/// threads take it too.
class Engine {
 public:
  static constexpr std::chrono::milliseconds min_period{100};  // of a ticker

  static Engine& get();
  std::mutex& mutex() { return mutex_; }
  Lock lock() { return Lock{mutex_}; }
  /// Lock that the engine's thread holds in calls of handlers and tickers. Only for such calls.
  const Lock& callback_lock() const { return *callback_lock_; }

  // The caller must hold the mutex.
  Result<void> add(std::shared_ptr<Handler> handler, std::uint32_t events);
  void watch(const Handler& handler, std::uint32_t events);
  void remove(Handler& handler);
  /// True in calls of handlers and tickers by the engine's thread.
  bool in_engine_thread() const { return in_round_; }
  /// True in the engine's thread. Any thread, without the mutex.
  static bool in_own_thread();
  /// Calls `tick` about every `period`, at least 100 ms, until it returns false.
  Result<void> add_ticker(std::function<bool()> tick,
                          std::chrono::milliseconds period = min_period);
  /// Calls all tickers now, once. One that has nothing left to do then ends.
  void tick_soon();
  /// Calls `handler.flush()` after the events of this round. On other threads it calls at once.
  void flush_soon(const std::shared_ptr<Handler>& handler);
  /// Calls `handler.flush()` in the engine's thread, also for other threads.
  void flush_later(const std::shared_ptr<Handler>& handler);

 private:
  struct Ticker {
    std::function<bool()> tick;
    std::chrono::milliseconds period;
    std::chrono::steady_clock::time_point due;
  };
  Engine() = default;
  Result<void> start();
  void wake() const;
  void loop(int epoll);
  void serve(const epoll_event& event);
  void tick();
  int until_tick_ms() const;
  void flush_all();
  /// Calls one function of the handler. An exception ends this handler, and nothing else.
  template <class Call>
  void call(Handler& handler, Call&& call) noexcept;
  void stop();
  static Engine& made();
  static void before_fork();
  static void after_fork();
  static void in_child();

  std::mutex mutex_;
  std::map<std::uint64_t, std::shared_ptr<Handler>> handlers_;
  std::list<Ticker> tickers_;
  std::vector<std::shared_ptr<Handler>> dirty_;
  std::uint64_t last_id_ = 0;
  std::thread thread_;
  static const Engine& early_;
  std::binary_semaphore born_{0};
  bool running_ = false;
  bool in_round_ = false;                // the engine's thread is handling events
  const Lock* callback_lock_ = nullptr;  // of `loop`
  int epoll_ = -1;
  int event_ = -1;
};

}  // namespace ccl::detail::net
