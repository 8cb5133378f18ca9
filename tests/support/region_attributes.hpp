#pragma once

// Memory of `FakeGpus` as a program's own: the driver describes what is at an address.
#include <iterator>
#include <mutex>

#include "support/fake_gpus.hpp"
#include "support/pointer_attributes.hpp"

namespace ccl::test {

/// Answers `cuPointerGetAttributes`: `allocation_around` asks for these.
inline CUresult describe_region(unsigned count, CUpointer_attribute* what, void** to,
                                CUdeviceptr at) {
  FakeGpus& all = fake::gpus();
  const std::lock_guard lock{all.mutex};
  const auto next = all.regions.upper_bound(at);
  if (next == all.regions.begin()) return CUDA_ERROR_INVALID_VALUE;
  const auto& [base, region] = *std::prev(next);
  if (at >= base + region.bytes) return CUDA_ERROR_INVALID_VALUE;
  // The address of other memory is not used again while it is mapped, so it is the number, too.
  FakeAllocation memory{base,
                        region.bytes,
                        CU_MEMORYTYPE_DEVICE,
                        at,
                        region.device,
                        region.fd >= 0,
                        region.number != 0 ? region.number : base};
  if (region.pages >= 0) memory.handle_types = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return answer_attributes(memory, count, what, to);
}

/// Installs GPUs whose memory a program may register with or without cuMem handles. Returns their
/// driver, which a test may change.
inline detail::CudaDriver install_gpus(int devices) {
  auto cuda = fake::driver();
  cuda.pointer_get_attributes = describe_region;
  static const auto map = cuda.mem_map;
  cuda.mem_map = [](CUdeviceptr at, std::size_t bytes, std::size_t offset,
                    CUmemGenericAllocationHandle handle, unsigned long long flags) {
    const CUresult mapped = map(at, bytes, offset, handle, flags);
    const std::lock_guard lock{fake::gpus().mutex};
    static unsigned long long mappings = 0;
    if (mapped == CUDA_SUCCESS) {
      fake::gpus().regions[at].pages = ::dup(reinterpret_cast<fake::Handle*>(handle)->fd);
      fake::gpus().regions[at].number = ++mappings;
    }
    return mapped;
  };
  cuda.mem_retain_handle = [](CUmemGenericAllocationHandle* handle, void* at) {
    const std::lock_guard lock{fake::gpus().mutex};
    const FakeGpus::Region* const region = fake::gpus().region(at);
    if (region == nullptr || region->pages < 0) return CUDA_ERROR_INVALID_VALUE;
    *handle =
        reinterpret_cast<std::uintptr_t>(new fake::Handle{::dup(region->pages), region->device});
    return CUDA_SUCCESS;
  };
  cuda.mem_get_properties = [](CUmemAllocationProp* how, CUmemGenericAllocationHandle handle) {
    *how = {};
    how->type = CU_MEM_ALLOCATION_TYPE_PINNED;
    how->location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    how->location.id = reinterpret_cast<fake::Handle*>(handle)->device;
    how->requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    return CUDA_SUCCESS;
  };
  detail::use_cuda_driver(cuda, devices);
  return cuda;
}

}  // namespace ccl::test
