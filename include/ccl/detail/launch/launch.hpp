#pragma once

#include <ccl/comm/stream.hpp>
#include <ccl/detail/exec/kernel_registry.hpp>
#include <ccl/detail/launch/call.hpp>

#include <memory>
#include <mutex>
#include <string_view>
#include <type_traits>
#include <utility>

namespace ccl::detail {

class MessageList;

/// Run of one call, on CPU lanes or on a GPU. Holds the lock of its composition. A launch that does
/// not finish is recorded as failed.
class Launch {
  struct Key {
    explicit Key() = default;
  };

 public:
  using Lock = std::unique_lock<BiasedMutex>;

  /// Begins `call` and wakes the proxy. Fails if the communicator is not healthy or, with checking
  /// on, if the ranks made different calls. Locks the composition, unless `lock` is of its mutex:
  /// the caller then holds it.
  static Result<Launch> begin(QueuedCall&& call, Lock lock = {});
  /// Begins a call on a stream of the GPU, as `begin` and `on_device` do.
  static Result<Launch> begin_on_device(std::shared_ptr<Connections> of, const CallInfo& info,
                                        Stream stream, Lock lock = {},
                                        std::shared_ptr<void> keep = {});
  /// For `begin`, which makes it where its caller keeps it.
  Launch(Key, QueuedCall&& call, Lock&& lock) : call_{std::move(call)}, lock_{std::move(lock)} {
    call_.launched_ = true;
  }
  Launch(Launch&& other) noexcept;
  Launch& operator=(Launch&&) = delete;
  ~Launch();

  Connections& connections() const { return call_.connections(); }

  /// Queues the launch on `stream`. Other threads' launches on this communicator wait until
  /// `finish`. A graph that captures the launch holds `keep`, or the composition if it is null.
  Result<void> on_device(Stream stream, std::shared_ptr<void> keep = {});
  /// Place of the kernels, after `on_device`.
  const DeviceTarget& target() const { return target_; }

  /// Runs the CPU lanes, which help the proxy while they wait. All wires must be connected. If a
  /// network plug-in carries some, the lanes run on another thread, which can be left behind.
  template <class Lanes>
  void run_lanes(Lanes&& lanes) {
    run_lanes([](void* of) { (*static_cast<std::remove_reference_t<Lanes>*>(of))(); }, &lanes);
  }
  /// Checks, with checking on, that both ends of each message give the same length. Otherwise the
  /// communicator fails. Messages are listed by peer.
  bool same_messages(std::string_view op, const MessageList& sends, const MessageList& recvs);
  /// Returns the failure of the CPU lanes or of the communicator.
  Result<void> end_lanes();
  /// Ends the launch and returns its result. `cuda_code` is the result of the kernels' launch. If a
  /// launch on a GPU has failed, peers wait for it, so the communicator fails on all ranks. It does
  /// not while a graph is being captured, or if all ranks refuse the call.
  Result<void> finish(int cuda_code = 0);
  /// Ends a launch on a GPU of which `error` has kept a part from its stream, as `finish` does.
  Result<void> give_up(Error error);

 private:
  friend class ShortCall;
  static Result<Launch> begin_queued(QueuedCall&& call, Stream stream, Lock lock,
                                     std::shared_ptr<void> keep);
  Result<void> start();
  void run_lanes(void (*lanes)(void* of), void* of);
  void leave_order();
  Result<void> check() const;
  Result<void> end_on_device(int cuda_code);
  Result<void> fail_queueing(CUstream_st* stream, Error error) const;

  QueuedCall call_;
  Lock lock_;
  DeviceTarget target_{};
  bool queued_ = false;    // the launch is on a stream of the GPU
  bool shown_ = false;     // a range of NVTX is open
  bool finished_ = false;  // also true if moved from
};

/// Fails if a communicator on a GPU was given a `HostStream`.
Result<void> check_on_device(const Connections& connections, Stream stream);
/// Fails if a communicator of CPU ranks was given a CUDA stream, is not healthy, or belongs to
/// another process.
Result<void> check_on_host(const Connections& connections, Stream stream);
/// Fails the communicator on all ranks, because an exchange found a count in memory that is too
/// large.
Result<void> fail_overflow(const Connections& connections, const LaneFailure& found);

}  // namespace ccl::detail
