#pragma once

#include <ccl/types/result.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/io/fd.hpp"
#include "transport/ib/verbs/queue_pair.hpp"

namespace ccl::detail {

class ProxyEngine;

/// Events for one task, until its turn.
struct IbInbox {
  static constexpr std::size_t outside = ~std::size_t(0);

  std::vector<ibv_wc> completions;  // in the order of each queue pair
  std::string lost_queue;           // device with a completion queue that cannot be read
  bool aside = false;               // its control socket is readable, or a device has an event
  std::size_t place = outside;      // among the tasks of its `IbCompletions`

  bool any() const { return aside || !completions.empty() || !lost_queue.empty(); }
};

/// Completion queues and descriptors that all RDMA connections of an engine share. On each device
/// the queue pairs of all tasks complete into few queues with one channel, and each completion goes
/// to the task of its queue pair. One epoll set has the channels, the devices' events and the
/// control sockets; the first task waits for it on behalf of all.
///
/// Only the thread that runs the engine's tasks calls it, so nothing here takes a lock. Tasks that
/// end outside of a round, with their engine, do so one after the other.
class IbCompletions {
  struct Queue;
  struct Device;

 public:
  /// Returns those of the engine's connections; makes them for the first. Any thread.
  static Result<std::shared_ptr<IbCompletions>> of(const ProxyEngine* engine);
  ~IbCompletions();
  IbCompletions(const IbCompletions&) = delete;
  IbCompletions& operator=(const IbCompletions&) = delete;

  /// A task's part of a completion queue: room for all completions of its queue pairs, which must
  /// be destroyed before it. No completion of them is left in the queue after it, so that a later
  /// queue pair with the same number gets none of them.
  class Share {
   public:
    Share(IbCompletions& all, Device& device, Queue& queue, int entries, IbInbox& of);
    ~Share();
    Share(const Share&) = delete;
    Share& operator=(const Share&) = delete;

    ibv_cq* queue() const;
    const IbDevice* device() const;
    /// The completions of this queue pair go to the task.
    void add(std::uint32_t number);
    /// Looks into the queue once. Completions go to the inboxes of their tasks. Returns true if
    /// there were any: more may follow then.
    bool poll();
    /// Looks into the queue unless another task has done so since this one's last turn: once in
    /// each round of the engine.
    void take_turn();

   private:
    IbCompletions& all_;
    Device& device_;
    Queue& queue_;
    const int entries_;
    IbInbox& of_;
    std::vector<std::uint32_t> numbers_;
    unsigned seen_ = 0;  // looks of all tasks at its last turn
  };

  void join(IbInbox& of);
  void leave(IbInbox& of);
  /// Makes room for so many completions on a device.
  Result<std::unique_ptr<Share>> share(const std::shared_ptr<IbDevice>& device, int entries,
                                       IbInbox& of);
  /// Reports in `of` when this control socket is readable; `forget` it before it is closed.
  void watch(int fd, IbInbox& of);
  void forget(int fd);

  /// Returns the descriptor for poll(2), if this task is the one that waits; else -1.
  int fd_for(const IbInbox& of) const { return of.place == 0 ? epoll_.get() : -1; }
  /// Lets `fd_for` become readable at the next event, and gives out those until now. Returns true
  /// if there were any. For the task that waits.
  bool arm();

 private:
  /// Source of a descriptor's events: a task's control socket, or a device.
  struct Source {
    IbInbox* line = nullptr;
    Device* device = nullptr;
  };
  explicit IbCompletions(Fd epoll);
  Result<Device*> open(const std::shared_ptr<IbDevice>& device);
  void close_unused(Device& device);
  bool add_source(int fd, Source source);

  Fd epoll_;
  std::vector<IbInbox*> tasks_;
  std::unordered_map<int, Source> sources_;  // by descriptor
  std::vector<std::unique_ptr<Device>> devices_;
};

}  // namespace ccl::detail
