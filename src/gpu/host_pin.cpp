#include "gpu/host_pin.hpp"

#include <fmt/format.h>

namespace ccl::detail {

Result<HostPin> HostPin::make(std::shared_ptr<Gpu> gpu, std::byte* at, std::size_t bytes) {
  HostPin pin;
  const CudaDriver& cuda = gpu->driver();
  const Gpu::Current current{*gpu};
  const auto check = [&](CUresult code) -> Result<void> {
    if (code == CUDA_SUCCESS) return {};
    Error error = cuda_error(
        code, fmt::format("pin {} bytes of host memory for device {}", bytes, gpu->device()));
    error.what += "; raise the limit on locked memory, or make fewer or smaller slots";
    return fail(std::move(error));
  };
  CCL_CHECK(check(cuda.mem_host_register(
      at, bytes, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP)));
  pin.gpu_ = gpu;
  pin.here_ = at;
  CUdeviceptr there = 0;
  CCL_CHECK(check(cuda.mem_host_get_device_pointer(&there, at, 0)));
  pin.there_ = reinterpret_cast<std::byte*>(there);
  return pin;
}

HostPin::~HostPin() {
  if (here_ == nullptr) return;
  const Gpu::Current current{*gpu_};
  (void)gpu_->driver().mem_host_unregister(here_);
}

}  // namespace ccl::detail
