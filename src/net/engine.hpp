#pragma once

#include <ccl/types/result.hpp>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <semaphore>
#include <thread>
#include <vector>

namespace ccl::detail::net {

/// Something with a file descriptor that the engine watches. All calls come with the engine's mutex
/// held.
class Handler {
 public:
  virtual ~Handler() = default;
  virtual int fd() const = 0;
  virtual void ready(std::uint32_t events) = 0;  // EPOLLIN, EPOLLOUT ...
  virtual void flush() {}                        // after a round in which it asked for it
  virtual void forget() = 0;                     // a forked child: close, touch nothing else

 private:
  friend class Engine;
  std::uint64_t id_ = 0;  // 0: not watched
};

/// The one thread of a process that serves all listening sockets, roots and bootstraps. It starts
/// with the first handler and ends with the last. One mutex guards all that hangs on it; user
/// threads take it too, so that no state needs a second lock.
class Engine {
 public:
  static Engine& get();
  std::mutex& mutex() { return mutex_; }

  // With the mutex held:
  Result<void> add(std::shared_ptr<Handler> handler, std::uint32_t events);
  void watch(const Handler& handler, std::uint32_t events);
  void remove(Handler& handler);
  /// Calls `tick` about ten times a second until it returns false.
  Result<void> add_ticker(std::function<bool()> tick);
  /// Calls `handler.flush()` when this round's events are handled; at once from any other thread.
  void flush_soon(const std::shared_ptr<Handler>& handler);

 private:
  Engine() = default;
  Result<void> start();
  void wake() const;
  void loop(int epoll, int event);
  void stop();
  static void before_fork();
  static void after_fork();
  static void in_child();

  std::mutex mutex_;
  std::map<std::uint64_t, std::shared_ptr<Handler>> handlers_;
  std::vector<std::function<bool()>> tickers_;
  std::vector<std::shared_ptr<Handler>> dirty_;
  std::uint64_t last_id_ = 0;
  std::thread thread_;
  std::binary_semaphore born_{0};
  bool running_ = false;
  bool in_round_ = false;  // the engine's thread is handling events
  int epoll_ = -1;
  int event_ = -1;
};

}  // namespace ccl::detail::net
