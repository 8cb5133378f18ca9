#pragma once

#include <ccl/transport/transport.hpp>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/io/mapping.hpp"
#include "proxy/library_calls.hpp"
#include "transport/plug_in/context.hpp"
#include "transport/plug_in/events.hpp"
#include "transport/registered_memory.hpp"

namespace ccl::detail {

/// The plug-in's objects for one channel of an end.
struct NetChannel {
  int device = 0;
  void* listener = nullptr;  // at the receiver, until it has accepted
  void* comm = nullptr;
  void* slots = nullptr;             // registration of the channel's slots
  std::vector<void*> user_memory{};  // registrations of registered buffers
  std::vector<NetStep> steps{};      // by slot, for events of the plug-in; empty: nobody follows
  /// Names the channel among the registrations of a buffer, which keep it.
  std::shared_ptr<const int> identity = std::make_shared<const int>(0);
};

/// The plug-in's objects of one end of a connection. They end on a thread of their own, because a
/// plug-in may wait for its peer there, and keep the memory that they access.
class NetChannels : public std::enable_shared_from_this<NetChannels> {
 public:
  NetChannels(std::shared_ptr<NetContext> context, const Edge& edge,
              std::shared_ptr<LibraryCalls> calls, double creation_limit_s,
              double operation_limit_s);

  const NetPlugIn& plug_in() const { return context_->plug_in(); }
  const NetContext& context() const { return *context_; }
  std::vector<NetChannel> each;
  /// The task holds it in each turn, and a thread that ends all access.
  std::mutex use;

  /// Runs a function of the plug-in in a turn of the task.
  template <class Call>
  int call(const char* function, std::size_t channel, Call&& call) {
    called_for_ = channel;
    return calls_->run(function, call_limit_s_, std::forward<Call>(call));
  }
  /// Lets a call take half of the operation limit from here on, in place of that of creation.
  void works();
  /// Gives all objects up, because a call has not returned. They stay until the process ends.
  void leave();
  /// Gives all objects up, because the plug-in must not be called any more.
  void abandon();
  /// Error: a call to `function` has not returned for `seconds`.
  Error overdue(const char* function, double seconds) const;

  /// Returns the registration of a registered buffer for a channel; null, after a line of the log,
  /// if the plug-in cannot register it. The caller holds `use`.
  void* user_memory(RegisteredMemory& memory, std::size_t channel);
  /// Lets the task end the registration of a buffer. Any thread, which waits for that for at most
  /// some seconds, unless it gives tasks turns itself.
  void end_user_memory(std::size_t channel, void* handle);
  /// Ends the registrations that `end_user_memory` has left to this turn of the task.
  void end_due();
  bool any_due() const { return any_due_.load(std::memory_order_acquire); }
  /// Ends all access to registered buffers, by closing all objects. Any thread, which waits for at
  /// most some seconds.
  void end_access();

  /// Begins to close all objects. They must not be used from here on. May be called again.
  void begin_close();
  /// True if a registered buffer was used and the objects are not closed: the plug-in may access
  /// it.
  bool has_access() const { return used_memory_.load() && !closed(); }
  bool closing() const { return begun_.load(std::memory_order_acquire); }
  bool closed() const { return closed_.load(std::memory_order_acquire); }
  /// Waits until all objects are closed, until a second has passed since `begin_close`.
  void await_close() const;
  /// Keeps the slots, in host or GPU memory, for as long as the plug-in may access them.
  void keep(Mapping memory, std::shared_ptr<void> of_gpu) {
    memory_ = std::move(memory);
    of_gpu_ = std::move(of_gpu);
  }

 private:
  void close();
  bool close_one(NetChannel& channel, int number);
  Error error(const char* function, int result, std::size_t channel) const;

  const std::shared_ptr<NetContext> context_;
  const bool sends_;
  const std::string between_;  // "from rank 0 to rank 1 on node7"
  const std::shared_ptr<LibraryCalls> calls_;
  const double operation_limit_s_;
  double call_limit_s_;
  const char* limited_by_ = "CCL_INIT_TIMEOUT";
  std::size_t called_for_ = 0;  // channel of the latest call
  /// Registration that the task ends in its next turn.
  struct Due {
    std::size_t channel = 0;
    void* handle = nullptr;
    std::atomic<bool> done{false};
  };
  std::mutex due_mutex_;
  std::vector<std::shared_ptr<Due>> due_;
  std::atomic<bool> any_due_{false};
  Mapping memory_;
  std::shared_ptr<void> of_gpu_;
  std::atomic<bool> used_memory_{false};  // of the program
  std::atomic<bool> begun_{false}, closed_{false}, left_{false};
  std::chrono::steady_clock::time_point begun_at_{};
};

}  // namespace ccl::detail
