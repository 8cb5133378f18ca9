#pragma once

#include <functional>
#include <vector>

#include "rendezvous.hpp"
#include "orders.hpp"
#include "side.hpp"
#include <sys/types.h>

namespace ccl::perf {

/// The ranks of one library in one mode: processes of their own, or threads of one. They sleep
/// until they are told what to do. Owns them; its end kills what is left.
class Group {
 public:
  /// Forks, so: before this process makes threads or a call of CUDA's.
  static Result<std::unique_ptr<Group>> start(const Options& options, const Mode& mode, int ranks,
                                              const std::string& nccl_library);
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  /// Rank 0's invitation, then everyone's join. By rank.
  Result<std::vector<Reply>> join();
  /// All ranks do it; their replies by rank, or the first failure.
  Result<std::vector<Reply>> ask(const Order& order);
  void kill();

 private:
  Group(const Options& options, const Mode& mode, int ranks)
      : options_{options}, mode_{mode}, ranks_{ranks} {}
  Result<std::vector<Reply>> ask(const Order& order, int ranks);
  Result<void> fork_ranks(const std::string& nccl_library);
  /// How the process of a rank ended, in words.
  std::string ending(int rank);

  const Options& options_;
  const Mode mode_;
  const int ranks_;
  std::unique_ptr<Rendezvous> rendezvous_;
  std::vector<int> sockets_;      // by rank
  std::vector<pid_t> processes_;  // by rank; of threads: one
};

/// Runs `body` in a process of its own, and takes over what it wrote to `data`.
Result<void> run_apart(double deadline_s, void* data, std::size_t bytes,
                       const std::function<void()>& body);
/// What `f` gives in a process of its own: for calls that this process must not make.
template <class T>
Result<T> in_other_process(double deadline_s, const std::function<T()>& f) {
  static_assert(std::is_trivially_copyable_v<T>);
  T value{};
  CCL_CHECK(run_apart(deadline_s, &value, sizeof value, [&] { value = f(); }));
  return value;
}

}  // namespace ccl::perf
