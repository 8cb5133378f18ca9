#include "gpu/gpu.hpp"

#include <fmt/format.h>

#include <new>

namespace ccl::detail {

Gpu::Current::Current(const Gpu& gpu) : driver_{gpu.driver_} {
  (void)driver_.ctx_push_current(gpu.context_);
  (void)driver_.thread_exchange_capture_mode(&mode_);
}
Gpu::Current::~Current() {
  (void)driver_.thread_exchange_capture_mode(&mode_);
  CUcontext mine;
  (void)driver_.ctx_pop_current(&mine);
}

Result<std::shared_ptr<Gpu>> Gpu::open(int device) {
  CCL_TRY(const CudaDriver* const driver, cuda_driver());
  if (device < 0 || device >= cuda_device_count()) {
    return fail(Errc::invalid_argument,
                fmt::format("there is no CUDA device {} (this process sees {}); see "
                            "CUDA_VISIBLE_DEVICES",
                            device, cuda_device_count()));
  }
  std::shared_ptr<Gpu> gpu{new Gpu{*driver, device}};
  CUdevice handle;
  CCL_CHECK(cuda_check(driver->device_get(&handle, device), "get the device"));
  CCL_CHECK(cuda_check(driver->primary_ctx_retain(&gpu->context_, handle),
                       fmt::format("use CUDA device {}", device)));
  CCL_CHECK(
      cuda_check(driver->device_get_attribute(&gpu->multiprocessors_,
                                              CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, handle),
                 "count multiprocessors"));
  const Current current{*gpu};
  CCL_CHECK(
      cuda_check(driver->stream_create(&gpu->stream_, CU_STREAM_NON_BLOCKING), "make a stream"));
  void* pinned = nullptr;
  CCL_CHECK(cuda_check(driver->mem_host_alloc(&pinned, sizeof(Watched),
                                              CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP),
                       "allocate pinned memory"));
  gpu->watched_ = new (pinned) Watched;
  return gpu;
}

Gpu::~Gpu() {
  if (context_ == nullptr) return;
  {
    const Current current{*this};
    if (stream_ != nullptr) (void)driver_.stream_destroy(stream_);
    if (watched_ != nullptr) (void)driver_.mem_free_host(watched_);
  }
  CUdevice handle;
  if (driver_.device_get(&handle, device_) == CUDA_SUCCESS) {
    (void)driver_.primary_ctx_release(handle);
  }
}

Result<void> Gpu::copy(void* to, const void* from, std::size_t bytes) const {
  const Current current{*this};
  const std::lock_guard lock{mutex_};
  CCL_CHECK(cuda_check(driver_.memcpy_async(reinterpret_cast<CUdeviceptr>(to),
                                            reinterpret_cast<CUdeviceptr>(from), bytes, stream_),
                       "copy"));
  return cuda_check(driver_.stream_synchronize(stream_), "copy");
}
Result<void> Gpu::clear(void* at, std::size_t bytes) const {
  const Current current{*this};
  const std::lock_guard lock{mutex_};
  CCL_CHECK(cuda_check(driver_.memset_async(reinterpret_cast<CUdeviceptr>(at), 0, bytes, stream_),
                       "clear memory"));
  return cuda_check(driver_.stream_synchronize(stream_), "clear memory");
}

}  // namespace ccl::detail
