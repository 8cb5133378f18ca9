#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <list>
#include <memory>
#include <mutex>
#include <semaphore>
#include <string>

#include "observe/health/client.hpp"
#include "observe/health/listener.hpp"
#include "observe/health/listing.hpp"
#include "observe/health/metrics_file.hpp"
#include "observe/health/monitor.hpp"

namespace ccl::detail::health {

/// Thread of a process that answers clients about its communicators. It starts with the first
/// communicator and ends after the last. No thread of the job waits for it: they take its mutex,
/// which it holds for moments only.
class Service {
 public:
  static constexpr std::size_t max_clients = 16;

  static Service& get();
  void join(CommState& state);
  void leave(CommState& state);

 private:
  Service() = default;
  void run();
  bool round();
  bool ends();
  void open();
  void wait_and_serve();
  int wait_ms() const;
  void accept_all();
  void make_room();
  void drop_over();
  void answer_all();
  void answer(Client& client);
  void notify_monitors();
  void take_samples();
  std::shared_ptr<const std::string> rendered(const Request& request);
  const Snapshot& snapshot();
  std::string metrics();
  void drop(std::list<Client>::iterator client);

  static Service& made();
  static void before_fork();
  static void after_fork();
  static void in_child();
  static const Service& early_;

  std::mutex mutex_;
  // The mutex guards these.
  Listing listing_;
  bool running_ = false;
  bool held_ = false;  // by the thread that forks
  std::binary_semaphore born_{0};
  int event_ = -1;
  std::array<int, max_clients> client_fds_{};  // 0: none; a forked child closes them
  int listener_fd_ = -1;

  // Only the service's thread uses these.
  std::list<Client> clients_;
  Listener listener_;
  MetricsFile file_;
  Monitor monitor_;
  std::string address_;  // guarded by the mutex; where to listen, empty: nowhere
  Snapshot snapshot_;
  net::Clock::time_point taken_{}, notified_{}, sampled_{}, scraped_{};
  bool has_snapshot_ = false;
  struct Rendered {
    Kind kind;
    Format format;
    net::Clock::time_point at;
    std::shared_ptr<const std::string> text;
  };
  std::list<Rendered> rendered_;
};

}  // namespace ccl::detail::health
