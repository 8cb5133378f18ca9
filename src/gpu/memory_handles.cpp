#include <ccl/comm/log.hpp>
#include <ccl/types/word.hpp>

#include <fmt/format.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <utility>

#include "base/io/os_error.hpp"
#include "gpu/devices.hpp"
#include "gpu/memory.hpp"
#include "gpu/shared_handle.hpp"
#include <fcntl.h>

// Memory of cuMem handles: pages, their mappings and access, and rest.
namespace ccl::detail {
namespace {

/// Properties of memory on a device. RDMA devices may register it if the GPU can allow that: some
/// drivers refuse memory that was not asked for as such.
CUmemAllocationProp properties(const CudaDriver& cuda, int device, bool fabric) {
  CUmemAllocationProp how{};
  how.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  how.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  how.location.id = device;
  unsigned types = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  if (fabric) types |= CU_MEM_HANDLE_TYPE_FABRIC;
  how.requestedHandleTypes = CUmemAllocationHandleType(types);
  int rdma = 0;
  (void)cuda.device_get_attribute(
      &rdma, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, device);
  how.allocFlags.gpuDirectRDMACapable = rdma != 0 ? 1 : 0;
  return how;
}
CUmemAccessDesc writable(int device) {
  CUmemAccessDesc access{};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.location.id = device;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return access;
}

}  // namespace

Result<void> GpuMemory::allocate_handles(std::size_t bytes, int device) {
  device_ = device;
  name_.bytes = bytes;
  Result<void> made = create_handle(gpu_->fabric());
  if (!made && gpu_->fabric() && made.error().code != Errc::out_of_memory) {
    // Without access to the fabric (IMEX), memory serves this host only.
    log_info(LogPart::p2p, "no memory for other hosts: {}", made.error().what);
    CCL_CHECK(unmap());
    made = create_handle(false);
  }
  CCL_CHECK(made);
  return map_handle();
}

/// Takes pages on the device: at least `name_.bytes` bytes.
Result<void> GpuMemory::create_handle(bool fabric) {
  const CudaDriver& cuda = gpu_->driver();
  const CUmemAllocationProp how = properties(cuda, device_, fabric);
  std::size_t grain = 0;
  CCL_CHECK(cuda_check(cuda.mem_get_granularity(&grain, &how, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
                       "ask for the granularity of memory"));
  name_.bytes = div_up<Word>(name_.bytes, grain) * grain;
  CUmemGenericAllocationHandle made = 0;
  CCL_CHECK(cuda_check(cuda.mem_create(&made, name_.bytes, &how, 0),
                       fmt::format("allocate {} bytes on device {}", name_.bytes, device_)));
  handle_ = made;
  name_.handles = 1;
  return fabric ? export_fabric() : Result<void>{};
}

Result<void> GpuMemory::export_fabric() {
  CUmemFabricHandle fabric;
  CCL_CHECK(cuda_check(gpu_->driver().mem_export(&fabric, handle_, CU_MEM_HANDLE_TYPE_FABRIC, 0),
                       "share memory with other hosts (is /dev/nvidia-caps-imex-channels there?)"));
  std::memcpy(name_.key.data(), &fabric, sizeof fabric);
  name_.handles = 2;
  return {};
}

Result<void> GpuMemory::map_handle() {
  CUdeviceptr at = 0;
  CCL_CHECK(cuda_check(gpu_->driver().mem_address_reserve(&at, name_.bytes, 0, 0, 0),
                       "reserve addresses"));
  base_ = reinterpret_cast<std::byte*>(at);
  return map_pages();
}

/// Maps the pages of the handle at `base_`, for all devices that have used the memory.
Result<void> GpuMemory::map_pages() {
  CCL_CHECK(cuda_check(
      gpu_->driver().mem_map(reinterpret_cast<CUdeviceptr>(base_), name_.bytes, 0, handle_, 0),
      "map memory"));
  mapped_ = true;
  CCL_CHECK(open_to(gpu_->device()));
  const std::lock_guard lock{access_mutex_};
  for (const int device : accessible_) CCL_CHECK(open_to(device));
  return {};
}

/// Lets a device use memory of a handle. Where it may already, the driver is not asked again: a
/// repeated call fails, or removes the memory for a moment.
Result<void> GpuMemory::open_to(int device) {
  const CudaDriver& cuda = gpu_->driver();
  const auto at = reinterpret_cast<CUdeviceptr>(base_);
  const CUmemAccessDesc access = writable(device);
  unsigned long long has = 0;
  if (cuda.mem_get_access(&has, &access.location, at) == CUDA_SUCCESS && has == access.flags) {
    return {};
  }
  return cuda_check(cuda.mem_set_access(at, name_.bytes, &access, 1),
                    device == gpu_->device() ? fmt::format("let device {} use the memory", device)
                                             : fmt::format("let device {} use memory of device {}",
                                                           device, gpu_->device()));
}

Result<void> GpuMemory::open_to_all() {
  if (name_.handles == 0) return {};  // a program enables peers' access itself
  const Gpu::Current current{*gpu_};
  const std::lock_guard lock{access_mutex_};
  for (int device = 0; device < cuda_device_count(); ++device) {
    int reaches = 0;
    if (device == gpu_->device() || accessible_.contains(device)) continue;
    if (gpu_->driver().device_can_access_peer(&reaches, device, gpu_->device()) != CUDA_SUCCESS) {
      continue;
    }
    if (reaches == 0) continue;
    CCL_CHECK(open_to(device));
    accessible_.insert(device);
  }
  return {};
}

/// Undoes what a handle has been used for. The addresses stay reserved.
Result<void> GpuMemory::unmap() {
  const CudaDriver& cuda = gpu_->driver();
  Result<void> done;
  if (std::exchange(mapped_, false)) {
    done = cuda_check(cuda.mem_unmap(reinterpret_cast<CUdeviceptr>(base_), name_.bytes),
                      "unmap memory");
  }
  if (handle_ != 0) (void)cuda.mem_release(std::exchange(handle_, 0));
  return done;
}

Result<void> GpuMemory::import_handle(const Fd& fd) {
  CCL_TRY(handle_, detail::import_handle(gpu_->driver(), fd, name_.key));
  return {};
}

namespace {
Result<Fd> copy_of(const Fd& fd) {
  Fd copy{::fcntl(fd.get(), F_DUPFD_CLOEXEC, 0)};
  if (!copy) return fail(os_error(Errc::system, "cannot share a descriptor", errno));
  return copy;
}
}  // namespace

Result<Fd> GpuMemory::share() const {
  if (loan_) return copy_of(loan_->pages);  // drivers need not export what was imported
  const Gpu::Current current{*gpu_};
  int fd = -1;
  CCL_CHECK(cuda_check(
      gpu_->driver().mem_export(&fd, handle_, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
      "share memory"));
  return Fd{fd};
}

Result<Fd> GpuMemory::dma_buf() const {
  if (loan_ && loan_->dma_buf) return copy_of(loan_->dma_buf);
  if (loan_) return fail(Errc::not_supported, loan_->no_dma_buf);
  const Gpu::Current current{*gpu_};
  int fd = -1;
  CCL_CHECK(cuda_check(
      gpu_->driver().mem_get_handle_for_range(&fd, reinterpret_cast<CUdeviceptr>(base_),
                                              name_.bytes, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0),
      fmt::format("export {} bytes of GPU memory as a DMA-BUF", name_.bytes)));
  return Fd{fd};
}

Result<void> GpuMemory::save() {
  if (!mapped_) return {};
  std::unique_ptr<std::byte[]> kept{new (std::nothrow) std::byte[name_.bytes]};
  if (kept == nullptr) {
    return fail(Errc::out_of_memory,
                fmt::format("no host memory for {} bytes of device {}", name_.bytes, device_));
  }
  CCL_CHECK(gpu_->get(kept.get(), base_, name_.bytes));
  saved_ = std::move(kept);
  return {};
}

Result<void> GpuMemory::rest() {
  const Gpu::Current current{*gpu_};
  return unmap();
}

Result<void> GpuMemory::wake() {
  if (mapped_) return {};
  const auto take = [&]() -> Result<void> {
    const Gpu::Current current{*gpu_};
    CCL_CHECK(create_handle(name_.handles == 2));
    return map_pages();
  };
  auto taken = take();
  if (taken && saved_) taken = gpu_->put(base_, saved_.get(), name_.bytes);
  if (!taken) (void)rest();
  return taken;
}

Result<void> GpuMemory::wake(const GpuMemoryName& name, const Fd& fd) {
  if (mapped_) return {};
  name_ = name;
  const auto take = [&]() -> Result<void> {
    const Gpu::Current current{*gpu_};
    CCL_CHECK(import_handle(fd));
    return map_pages();
  };
  auto taken = take();
  if (!taken) (void)rest();
  return taken;
}

}  // namespace ccl::detail
