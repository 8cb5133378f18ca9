#include "gpu/address.hpp"

#include <fmt/format.h>

namespace ccl::detail {
namespace {

/// What the driver knows of the allocation around an address.
struct Allocation {
  unsigned kind = 0;  // a CUmemorytype; 0: the driver knows of none
  CUdeviceptr begin = 0;
  std::size_t bytes = 0;
  CUdeviceptr here = 0;  // where kernels of this context find the address; 0: nowhere
  int legacy = 0, ordinal = -1;
};

Allocation allocation_around(const CudaDriver& cuda, CUdeviceptr at) {
  Allocation a;
  CUpointer_attribute what[] = {
      CU_POINTER_ATTRIBUTE_MEMORY_TYPE,    CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
      CU_POINTER_ATTRIBUTE_RANGE_SIZE,     CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
      CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE};
  void* to[] = {&a.kind, &a.begin, &a.bytes, &a.here, &a.ordinal, &a.legacy};
  if (cuda.pointer_get_attributes(6, what, to, at) != CUDA_SUCCESS) return {};
  return a;
}

/// GPUs of some machines use any memory of the process.
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
                              what, at, a.ordinal, device, device));
    }
    const CUdeviceptr stop = a.begin + a.bytes;
    if (stop >= end && a.kind != 0) return {};
    if (a.kind == 0 || stop <= next || a.legacy != 0 || a.kind == CU_MEMORYTYPE_HOST) {
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
