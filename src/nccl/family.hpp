#pragma once

#include <ccl/comm/communicator.hpp>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

namespace ccl::detail::nccl {

/// End of one rank, on a thread of its own: first its own work ends, then it waits for the other
/// ranks, which may still need its memory and its connections.
class Ending {
 public:
  /// Starts the thread, which keeps `kept` until the end.
  static Result<std::shared_ptr<Ending>> start(Communicator comm, std::shared_ptr<void> kept);
  /// Waits for the rank's own work. Returns its result.
  Result<void> wait_for_own_work();
  /// Waits for all ranks. Returns the result.
  Result<void> wait_for_all();
  /// Waits for all ranks until then. Returns false if some are late.
  bool wait_for_all_until(std::chrono::steady_clock::time_point then);
  /// Waits for the thread, which ends when all ranks have come.
  void join();
  /// Lets the thread go on. The process waits for it at its exit, at most a minute.
  void leave_behind();

 private:
  void run(Communicator comm, std::shared_ptr<void> kept);
  std::thread thread_;
  std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  std::optional<Result<void>> own_, all_;  // empty: not done
  bool left_behind_ = false;
};

/// Returns a pointer. While one lives, the exit of the process waits, at most a minute: for an end
/// that no caller waits for.
std::shared_ptr<void> hold_exit();

/// Ranks that the end of one rank waits for.
enum class EndWaits { own_work, all_ranks };

/// Adds a rank of this process to a family: the ranks of one communicator, which has `ranks`.
void join_family(const std::string& name, int ranks);
/// Keeps memory for the ends of all ranks of the family, so that none is lost.
void prepare_end(const std::string& name);
/// Removes a rank, whose `ending` is null if it was aborted. One thread may end ranks of one
/// process one after the other: only the last one waits for all of them. It waits for ranks of
/// other processes with `EndWaits::all_ranks`, else for 5 s at most: they may be about to end their
/// last call, and a process that leaves by `_exit` would be a failure for them. A process that has
/// ranks of other communicators left does not leave, and waits 0.2 s at most. The end of its last
/// one waits for all. Returns the result of `ending`.
Result<void> leave_family(const std::string& name, std::shared_ptr<Ending> ending, EndWaits waits);

}  // namespace ccl::detail::nccl
