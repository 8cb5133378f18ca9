#pragma once

#include <ccl/types/result.hpp>

#include <cstddef>

#include <driver_types.h>

namespace ccl::detail::nccl {

// CUDA runtime calls, if this library contains device code. Without it they use host memory and
// wait for nothing.

/// Returns the device of this thread; -1: there is none.
int current_device();
/// Sets the device of this thread.
Result<void> set_device(int device);

/// Switches this thread to a device during its lifetime.
class OnDevice {
 public:
  /// A negative device leaves the thread on its own.
  explicit OnDevice(int device)
      : before_{current_device()}, moved_{device >= 0 && device != before_} {
    if (moved_) (void)set_device(device);  // of a rank that was on it earlier
  }
  ~OnDevice() {
    if (moved_ && before_ >= 0) (void)set_device(before_);
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  int before_;
  bool moved_;
};

/// Error for a failed call of the CUDA runtime that `what` names.
Result<void> check_cuda(cudaError_t code, const char* what);
/// Work queued on `later` from now on runs after the work already queued on `earlier`.
Result<void> put_after(cudaStream_t later, cudaStream_t earlier);
/// True if work on the stream goes into a graph now.
bool is_capturing(cudaStream_t stream);
/// Records an event of the program behind the stream's work.
Result<void> record(cudaEvent_t event, cudaStream_t stream);
/// Copies on the stream, within this rank's memory; CPU ranks copy at once.
Result<void> copy(void* to, const void* from, std::size_t bytes, cudaStream_t stream);
Result<void*> allocate(std::size_t bytes);
Result<void> release(void* memory);
/// Memory for one call: freed behind the stream's work.
Result<void*> allocate_on(std::size_t bytes, cudaStream_t stream);
Result<void> release_on(void* memory, cudaStream_t stream);

}  // namespace ccl::detail::nccl
