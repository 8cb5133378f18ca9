#pragma once

#include <ccl/types/result.hpp>

#include <cstddef>
#include <memory>
#include <utility>

struct CUstream_st;  // CUDA's type: cudaStream_t points to it

namespace ccl {
namespace detail {
struct Recorder;
/// Call in the queue of a `HostStream`, with all memory that the queue needs.
struct HostCall {
  virtual ~HostCall() = default;
  [[nodiscard]] virtual Result<void> run() = 0;
  std::unique_ptr<HostCall> next{};
};
template <class F>
struct HostCallOf final : HostCall {
  explicit HostCallOf(F f) : call{std::move(f)} {}
  [[nodiscard]] Result<void> run() override { return call(); }
  F call;
};
struct HostQueue;
}  // namespace detail

/// Ordered queue of calls with a thread that runs them, as a CUDA stream is for a GPU. A collective
/// that is given a stream returns at once. It runs when all calls queued before it have run.
class HostStream {
 public:
  HostStream();   // throws if the process may have no further thread
  ~HostStream();  // runs all queued calls, then ends the thread; does nothing in a forked child
  HostStream(const HostStream&) = delete;
  HostStream& operator=(const HostStream&) = delete;

  /// Queues `call`, which returns a `Result<void>`. Any thread may queue. `synchronize` returns its
  /// failure; later calls run all the same. An exception that `call` throws is a failure:
  /// `Errc::out_of_memory`, `Errc::system` or `Errc::internal`. Throws std::bad_alloc if there is
  /// no memory for the call.
  template <class F>
  void enqueue(F call) {
    push(std::make_unique<detail::HostCallOf<F>>(std::move(call)));
  }
  /// Blocks until all queued calls have run, at most `limit_s` seconds; 0 sets no limit. Returns
  /// the first failure since the last synchronize. `Errc::timed_out`: some calls have not run
  /// within the limit; they stay queued. `Errc::invalid_usage`: the caller is the stream's own
  /// thread, which would wait for itself.
  [[nodiscard]] Result<void> synchronize(double limit_s = 0);

 private:
  friend struct detail::HostQueue;
  struct State;
  void push(std::unique_ptr<detail::HostCall> call) noexcept;

  std::unique_ptr<State> state_;
};

namespace detail {
/// Queue of a stream, for the library itself: a call that has a place in an order takes it when
/// nothing can fail any more.
struct HostQueue {
  static void push(HostStream& stream, std::unique_ptr<HostCall> call) noexcept {
    stream.push(std::move(call));
  }
};
template <class F>
std::unique_ptr<HostCallOf<F>> host_call(F call) {
  return std::make_unique<HostCallOf<F>>(std::move(call));
}
}  // namespace detail

/// View of the stream that a collective is queued on: a `HostStream` or a `cudaStream_t`. With null
/// a call on CPU ranks blocks, and a call on GPUs takes the legacy default stream. The stream must
/// outlive the calls queued on it and, on GPUs, the communicator's next launch on another stream.
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

  /// Stream of a group: the call is recorded and not made.
  explicit Stream(detail::Recorder& recorder) : recorder_{&recorder} {}
  detail::Recorder* recorder() const { return recorder_; }

 private:
  HostStream* host_ = nullptr;
  CUstream_st* cuda_ = nullptr;
  detail::Recorder* recorder_ = nullptr;
};

}  // namespace ccl
