#pragma once

#include <ccl/detail/lanes/spin_wait.hpp>

#include <functional>
#include <memory>
#include <mutex>
#include <utility>

#include "gpu/driver.hpp"
#include "gpu/loan.hpp"
#include "gpu/pinned.hpp"

namespace ccl::detail {

/// Words that kernels poll and write for the host, in pinned memory. The host accesses them without
/// a driver call. Kernels read them once in thousands of polls.
struct Watched {
  Word stop = 0;
  LaneFailure lane_failure;
  WaitRecord waits;
  WaitRecord program_waits;  // of the program's kernels, by a `DeviceComm`
};

class CopyStream;

/// One GPU of a rank: its primary context, the stream of the library's own copies, and the words
/// that kernels poll.
class Gpu {
 public:
  static Result<std::shared_ptr<Gpu>> open(int device);
  ~Gpu();
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  const CudaDriver& driver() const { return driver_; }
  int device() const { return device_; }
  int multiprocessors() const { return multiprocessors_; }
  Watched& watched() const { return *static_cast<Watched*>(watched_.at()); }
  CUcontext context() const { return context_; }
  /// True if its memory gets handles for other hosts.
  bool fabric() const { return fabric_; }
  void use_fabric() { fabric_ = true; }
  /// Function by which its rank gets memory of GPUs that this process does not see; empty: it gets
  /// none. Set while no thread allocates.
  const AskForLoan& loans() const { return loans_; }
  void set_loans(AskForLoan loans) { loans_ = std::move(loans); }

  /// True while memory of this GPU may rest (see `GpuMemory`). A thread that uses such memory
  /// beside calls holds the lock, and leaves the memory alone meanwhile.
  struct Rest {
    std::mutex mutex;
    bool rests = false;
    /// Called with the lock before memory rests, while it can be used; empty: nothing. It gives
    /// back what is mapped of peers, whose programs may free it meanwhile.
    std::function<void()> before;
  };
  Rest& rest() { return rest_; }

  /// Makes the GPU's context current for the calling thread during its lifetime. Also allows calls
  /// that a stream capture forbids: they do not use that stream.
  class Current {
   public:
    explicit Current(const Gpu& gpu);
    ~Current();
    Current(const Current&) = delete;
    Current& operator=(const Current&) = delete;

   private:
    const CudaDriver& driver_;
    CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
  };

  /// Copy between this process's memory and the GPU at once, beside the GPU's other work and
  /// waiting copies. The GPU's side is memory that its context maps.
  Result<void> put(void* to, const void* from, std::size_t bytes) const;
  Result<void> get(void* to, const void* from, std::size_t bytes) const;
  /// Copies from pinned memory of the caller. Unlike `put` it allocates nothing, so it may run
  /// while kernels wait for the data.
  Result<void> put_pinned(void* to, const void* pinned, std::size_t bytes) const;
  Result<void> clear(void* at, std::size_t bytes) const;

 private:
  Gpu(const CudaDriver& driver, int device) : driver_{driver}, device_{device} {}
  const CudaDriver& driver_;
  int device_;
  int multiprocessors_ = 0;
  bool fabric_ = false;
  AskForLoan loans_;
  CUcontext context_ = nullptr;
  std::shared_ptr<CopyStream> copies_{};
  Pinned watched_;
  Rest rest_;
};

}  // namespace ccl::detail
