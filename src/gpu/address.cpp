#include "gpu/address.hpp"

#include <fmt/format.h>

#include "gpu/allocation.hpp"

namespace ccl::detail {
namespace {

/// True if the GPU can access all memory of the process.
bool uses_all_memory(const CudaDriver& cuda, int device) {
  CUdevice handle = -1;
  int all = 0;
  return cuda.device_get(&handle, device) == CUDA_SUCCESS &&
         cuda.device_get_attribute(&all, CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, handle) ==
             CUDA_SUCCESS &&
         all != 0;
}

}  // namespace

Result<void> check_address(const CudaDriver& cuda, int device, const char* what, const void* at,
                           Index bytes) {
  const auto begin = CUdeviceptr(at), end = begin + CUdeviceptr(bytes);
  for (CUdeviceptr next = begin; next < end;) {
    const Allocation a = allocation_around(cuda, next);
    if (a.kind == 0) {
      if (uses_all_memory(cuda, device)) return {};
      if (next == begin) {
        return fail(Errc::invalid_argument,
                    fmt::format("{} at {} is not memory that device {} can use (the driver does "
                                "not know it); take it from cudaMalloc or cudaHostAlloc",
                                what, at, device));
      }
    } else if (a.here == 0) {
      return fail(Errc::invalid_argument,
                  fmt::format("{} at {} is memory of device {}, which kernels on device {} cannot "
                              "use; take memory of device {}",
                              what, at, a.device, device, device));
    }
    const CUdeviceptr stop = a.end();
    if (stop >= end && a.kind != 0) return {};
    if (a.kind == 0 || stop <= next || a.legacy || a.kind == CU_MEMORYTYPE_HOST) {
      const CUdeviceptr behind = a.kind == 0 ? next : stop;
      return fail(Errc::invalid_argument,
                  fmt::format("{} has {} bytes at {}, but its memory ends after {}; give it memory "
                              "of its whole length",
                              what, bytes, at, behind - begin));
    }
    next = stop;
  }
  return {};
}

}  // namespace ccl::detail
