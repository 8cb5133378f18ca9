#pragma once

#include <ccl/types/result.hpp>

#include <atomic>
#include <memory>

namespace ccl::detail {

struct CommState;
struct Levels;

/// Sends failures that nobody has sent to the other ranks, also while this rank is in no call:
/// those of a transport, of a kernel and of a level. The network thread looks for them twice a
/// second.
class FailureWatch {
 public:
  explicit FailureWatch(CommState& state) : state_{state} {}
  FailureWatch(const FailureWatch&) = delete;
  FailureWatch& operator=(const FailureWatch&) = delete;

  /// Starts. Called once, when the communicator has its bootstrap.
  Result<void> start();
  /// Ends. The state may be destroyed afterwards. Any thread, without the engine's mutex.
  void stop() noexcept;

  /// Looks once, with the engine's mutex.
  void look() noexcept;

  /// Holds back the watch of `state` and those of its levels. For a thread that asks all ranks
  /// about a failure and then sends it: what is sent meanwhile would cut off the answers.
  class Pause {
   public:
    explicit Pause(CommState& state);
    ~Pause();
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;

   private:
    void count(int by) noexcept;

    CommState& state_;
    const std::shared_ptr<const Levels> levels_;
  };
  bool is_paused() const { return pauses_.load() != 0; }

 private:
  CommState& state_;
  bool started_ = false;
  bool failed_ = false;  // at the look before
  bool sent_ = false;
  std::atomic<int> pauses_{0};
};

}  // namespace ccl::detail
