#pragma once

#include <ccl/types/result.hpp>

#include <cstddef>

#include <driver_types.h>

namespace ccl::detail::nccl {

// The CUDA runtime, where this library was built with device code; host memory and nothing to wait
// for where it was not.

/// The device of this thread; -1: there are none.
int current_device();
/// From now on this thread's.
Result<void> set_device(int device);

/// While it lives, this thread is on that device.
class OnDevice {
 public:
  /// Below 0: where it is.
  explicit OnDevice(int device)
      : before_{current_device()}, moved_{device >= 0 && device != before_} {
    if (moved_) (void)set_device(device);  // a rank's, which has been there before
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

/// Waits for all that was queued on this thread's device.
Result<void> wait_for_device();
/// What is queued on `later` from now on runs after what has been queued on `earlier`.
Result<void> put_after(cudaStream_t later, cudaStream_t earlier);
Result<void*> allocate(std::size_t bytes);
Result<void> release(void* memory);

}  // namespace ccl::detail::nccl
