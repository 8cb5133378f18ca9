#pragma once

#include <ccl/detail/runtime/bootstrap.hpp>
#include <ccl/types/result.hpp>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ccl::detail {

struct CommState;

/// Bootstrap of a communicator and the steps that all ranks take together.
class Rendezvous {
 public:
  explicit Rendezvous(CommState& state) : state_{state} {}

  /// Null in a communicator of one rank.
  Bootstrap* bootstrap() const { return bootstrap_.get(); }
  void set_bootstrap(std::unique_ptr<Bootstrap> bootstrap) { bootstrap_ = std::move(bootstrap); }
  /// Only one thread at a time uses the bootstrap for collective steps.
  std::unique_lock<std::mutex> lock() { return std::unique_lock{mutex_}; }

  /// Number of a new composition. All ranks create compositions in the same order.
  int next_composition();
  /// Lock of the thread that creates a composition; empty if another thread has it.
  std::unique_lock<std::recursive_mutex> try_to_create() {
    return std::unique_lock{creation_mutex_, std::try_to_lock};
  }

  bool finalized() const { return finalized_.load(std::memory_order_acquire); }
  void set_finalized() { finalized_.store(true, std::memory_order_release); }

  /// Fails this communicator and its levels, and sends the error to the other ranks. Without memory
  /// for its text, the code alone fails all of them.
  void fail_all(Error error) noexcept;
  /// Fails all ranks, because this one needs more of `peer`, whose process has exited.
  void lose_departed(int peer) noexcept;
  /// Fails all ranks with `Errc::mismatch`, because `peer` differs. All ranks must detect the
  /// difference and call this function before any rank leaves. The caller holds `lock`.
  Result<void> disagree(std::string what, int peer);
  /// Fails all ranks with `Errc::mismatch`, because `sender` has sent what does not fit. The error
  /// names both ends.
  Result<void> break_off(int sender, std::string_view why);
  /// Returns the result of a rendezvous of all ranks, annotated with this rank. On
  /// `Errc::timed_out` the communicator fails, and the error names the rank that is behind.
  Result<void> after_rendezvous(Result<void> result);
  /// Returns the result of a collective creation step, annotated with this rank. On
  /// `Errc::timed_out` the communicator fails with the same error on all ranks.
  Result<void> after_creation(Result<void> result);
  /// Asks all ranks for a status after a deadline. If a rank does not answer, the communicator
  /// fails with an error that names it, the peer of `error` first; else returns `error` unchanged.
  /// If this rank alone has failed, sends that to all ranks. May take 2 s, and needs no lock.
  Error without_answer(Error error);
  /// Sends all ranks the error of a connection that has not come. A transport has set it on this
  /// rank alone. Names the rank that does not answer, as `without_answer` does. If all answer and
  /// another rank has named one meanwhile, returns that rank's error.
  Error late_connection(Error error);

 private:
  bool name_silent(Error& error, const std::vector<std::vector<std::byte>>& reported) const;
  void spread(const Error& error);

  CommState& state_;
  std::unique_ptr<Bootstrap> bootstrap_;
  std::mutex mutex_;
  std::atomic<int> compositions_{0};
  std::recursive_mutex creation_mutex_;
  std::atomic<bool> finalized_{false};
};

}  // namespace ccl::detail
