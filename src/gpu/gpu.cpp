#include "gpu/gpu.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "gpu/copy_stream.hpp"

namespace ccl::detail {
namespace {
/// Bytes that are copied at once. Long copies, as of memory that rests, take fewer round trips.
constexpr std::size_t piece_of(std::size_t bytes) {
  return bytes > (1 << 20) ? 1 << 20 : 16 << 10;
}
}  // namespace

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
  CCL_TRY(gpu->copies_, CopyStream::of(*driver));
  CCL_TRY(gpu->watched_, Pinned::take(*driver, sizeof(Watched)));
  new (gpu->watched_.at()) Watched;
  return gpu;
}

Gpu::~Gpu() {
  if (context_ == nullptr) return;
  if (copies_) {
    const Current current{*this};
    copies_.reset();
  }
  CUdevice handle;
  if (driver_.device_get(&handle, device_) == CUDA_SUCCESS) {
    (void)driver_.primary_ctx_release(handle);
  }
}

// Uses pinned memory: if a copy of other memory waits for a kernel of any stream, the next copy
// waits, too.
Result<void> Gpu::put(void* to, const void* from, std::size_t bytes) const {
  const Current current{*this};
  const std::size_t piece_bytes = piece_of(bytes);
  CCL_TRY(const Pinned piece, Pinned::take(driver_, piece_bytes));
  for (std::size_t done = 0; done < bytes; done += piece_bytes) {
    const std::size_t n = std::min(piece_bytes, bytes - done);
    std::memcpy(piece.at(), static_cast<const char*>(from) + done, n);
    CCL_CHECK(copies_->copy(static_cast<char*>(to) + done, piece.at(), n));
  }
  return {};
}
Result<void> Gpu::get(void* to, const void* from, std::size_t bytes) const {
  const Current current{*this};
  const std::size_t piece_bytes = piece_of(bytes);
  CCL_TRY(const Pinned piece, Pinned::take(driver_, piece_bytes));
  for (std::size_t done = 0; done < bytes; done += piece_bytes) {
    const std::size_t n = std::min(piece_bytes, bytes - done);
    CCL_CHECK(copies_->copy(piece.at(), static_cast<const char*>(from) + done, n));
    std::memcpy(static_cast<char*>(to) + done, piece.at(), n);
  }
  return {};
}
Result<void> Gpu::put_pinned(void* to, const void* pinned, std::size_t bytes) const {
  const Current current{*this};
  return copies_->copy(to, pinned, bytes);
}
Result<void> Gpu::clear(void* at, std::size_t bytes) const {
  const Current current{*this};
  return copies_->clear(at, bytes);
}

}  // namespace ccl::detail
