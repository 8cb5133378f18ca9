#include "gpu/allocation.hpp"

#include <iterator>

namespace ccl::detail {

Allocation allocation_around(const CudaDriver& cuda, CUdeviceptr at) {
  Allocation a;
  int legacy = 0;
  CUpointer_attribute what[] = {
      CU_POINTER_ATTRIBUTE_MEMORY_TYPE,    CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
      CU_POINTER_ATTRIBUTE_RANGE_SIZE,     CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
      CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
      CU_POINTER_ATTRIBUTE_BUFFER_ID};
  void* to[] = {&a.kind, &a.begin, &a.bytes, &a.here, &a.device, &legacy, &a.id};
  static_assert(std::size(what) == std::size(to));
  if (cuda.pointer_get_attributes(unsigned(std::size(what)), what, to, at) != CUDA_SUCCESS) {
    return {};
  }
  a.legacy = legacy != 0;
  return a;
}

AddressRange mapping_around(const CudaDriver& cuda, CUdeviceptr at) {
  AddressRange range;
  CUpointer_attribute what[] = {CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR,
                                CU_POINTER_ATTRIBUTE_MAPPING_SIZE};
  void* to[] = {&range.begin, &range.bytes};
  static_assert(std::size(what) == std::size(to));
  const CUresult found = cuda.pointer_get_attributes(unsigned(std::size(what)), what, to, at);
  return found == CUDA_SUCCESS && range.begin != 0 ? range : AddressRange{};
}

}  // namespace ccl::detail
