#pragma once

#include <ccl/types/result.hpp>

#include <condition_variable>
#include <functional>
#include <mutex>
#include <queue>
#include <thread>

struct CUstream_st;  // of CUDA: cudaStream_t points to it

namespace ccl {
namespace detail {
struct Recorder;
}

/// An ordered queue of calls on a thread of its own: what a CUDA stream is to a GPU. A collective
/// given a stream returns at once and runs when everything queued before it has run.
class HostStream {
 public:
  HostStream();   // throws where the process may have no further thread
  ~HostStream();  // runs what is queued, then ends the thread; in a forked child nothing
  HostStream(const HostStream&) = delete;
  HostStream& operator=(const HostStream&) = delete;

  /// Any thread. `call` runs after all that was queued before; its failure is kept for
  /// `synchronize`, and what comes after it runs all the same. It throws nothing: an exception ends
  /// the program.
  void enqueue(std::function<Result<void>()> call);
  /// Waits until all that was queued has run. The first failure since the last synchronize. On this
  /// stream's own thread, where it would wait for itself: `Errc::invalid_usage`.
  Result<void> synchronize();

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable wake_, idle_;
  std::queue<std::function<Result<void>()>> queue_;
  bool busy_ = false, stop_ = false;
  Result<void> failure_;
  int process_;  // whose thread it is; see `detail::forks_before`
  std::thread thread_;
};

/// Where a collective is queued: a HostStream or a cudaStream_t. Null: on the CPU the call blocks;
/// on a GPU it is the legacy default stream. A view: the stream must outlive what is queued on it
/// and, on a GPU, the communicator's next launch on another stream.
class Stream {
 public:
  Stream() = default;
  Stream(std::nullptr_t) {}
  Stream(HostStream* stream) : host_{stream} {}
  Stream(HostStream& stream) : host_{&stream} {}
  Stream(CUstream_st* stream) : cuda_{stream} {}
  HostStream* host() const { return host_; }
  CUstream_st* cuda() const { return cuda_; }

  /// For `group`: the call is not made, but put there.
  explicit Stream(detail::Recorder& recorder) : recorder_{&recorder} {}
  detail::Recorder* recorder() const { return recorder_; }

 private:
  HostStream* host_ = nullptr;
  CUstream_st* cuda_ = nullptr;
  detail::Recorder* recorder_ = nullptr;
};

}  // namespace ccl
