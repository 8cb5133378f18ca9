#pragma once

#include <ccl/types/result.hpp>

#include <condition_variable>
#include <functional>
#include <mutex>
#include <queue>
#include <thread>

struct CUstream_st;  // CUDA's type: cudaStream_t points to it

namespace ccl {
namespace detail {
struct Recorder;
}

/// Ordered queue of calls on a thread of its own, the CPU's counterpart of a CUDA stream. A
/// collective with a stream returns at once, and runs after all calls queued before it.
class HostStream {
 public:
  HostStream();  // throws if the process cannot have another thread
  ~HostStream();  // runs all queued calls, then ends the thread; does nothing in a forked child
  HostStream(const HostStream&) = delete;
  HostStream& operator=(const HostStream&) = delete;

  /// Queues `call`, which runs after all calls queued before it. Any thread may call this. A
  /// failure is kept for `synchronize`, and later calls still run. `call` must not throw: an
  /// exception ends the program.
  void enqueue(std::function<Result<void>()> call);
  /// Blocks until all queued calls have run. Returns the first failure since the last synchronize.
  /// Fails with `Errc::invalid_usage` on this stream's own thread, which would wait for itself.
  Result<void> synchronize();

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable wake_, idle_;
  std::queue<std::function<Result<void>()>> queue_;
  bool busy_ = false, stop_ = false;
  Result<void> failure_;
  int process_;  // process of the thread; see `detail::forks_before`
  std::thread thread_;
};

/// Queue of a collective: a HostStream or a cudaStream_t. A null stream makes the call block on the
/// CPU, and is the legacy default stream on a GPU. It is a view: the stream must outlive the calls
/// queued on it. On a GPU it must also outlive the communicator's next launch on another stream.
class Stream {
 public:
  Stream() = default;
  Stream(std::nullptr_t) {}
  Stream(HostStream* stream) : host_{stream} {}
  Stream(HostStream& stream) : host_{&stream} {}
  Stream(CUstream_st* stream) : cuda_{stream} {}
  /// Returns the HostStream, or null.
  HostStream* host() const { return host_; }
  /// Returns the CUDA stream, or null.
  CUstream_st* cuda() const { return cuda_; }

  /// Stream for `group`: calls are recorded in `recorder` and not made.
  explicit Stream(detail::Recorder& recorder) : recorder_{&recorder} {}
  detail::Recorder* recorder() const { return recorder_; }

 private:
  HostStream* host_ = nullptr;
  CUstream_st* cuda_ = nullptr;
  detail::Recorder* recorder_ = nullptr;
};

}  // namespace ccl
