#pragma once

#include <functional>
#include <vector>

#include "orders.hpp"
#include "rendezvous.hpp"
#include "side.hpp"
#include <sys/types.h>

namespace ccl::perf {

/// Ranks of one library in one mode: one process each, or threads of one process. They sleep until
/// they receive an order. The group owns them, and its destructor kills the remaining ones.
class Group {
 public:
  /// Forks the ranks. It must be called before this process creates threads or calls CUDA.
  static Result<std::unique_ptr<Group>> start(const Options& options, const Mode& mode, int ranks,
                                              const std::string& nccl_library);
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  /// Sends an invite to rank 0, then a join to all ranks. Returns their replies by rank.
  Result<std::vector<Reply>> join();
  /// Sends an order to all ranks. Returns their replies by rank, or the first failure.
  Result<std::vector<Reply>> ask(const Order& order);
  /// Times the phases of the prepared case on all ranks. The first failure is returned as by `ask`.
  Result<Explained> explain();
  void kill();

 private:
  Group(const Options& options, const Mode& mode, int ranks)
      : options_{options}, mode_{mode}, ranks_{ranks} {}
  Result<std::vector<Reply>> ask(const Order& order, int ranks);
  Result<void> fork_ranks(const std::string& nccl_library);
  /// Returns a description of the end of a rank's process.
  std::string ending(int rank);

  const Options& options_;
  const Mode mode_;
  const int ranks_;
  std::unique_ptr<Rendezvous> rendezvous_;
  std::vector<int> sockets_;      // by rank
  std::vector<pid_t> processes_;  // by rank; a single one for threads
};

/// Runs `body` in a process of its own, and copies its output in `data` to this process.
Result<void> run_apart(double deadline_s, void* data, std::size_t bytes,
                       const std::function<void()>& body);
/// Returns the result of `f` in a process of its own, for calls that this process must not make.
template <class T>
Result<T> in_other_process(double deadline_s, const std::function<T()>& f) {
  static_assert(std::is_trivially_copyable_v<T>);
  T value{};
  CCL_CHECK(run_apart(deadline_s, &value, sizeof value, [&] { value = f(); }));
  return value;
}

}  // namespace ccl::perf
