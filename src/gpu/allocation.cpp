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

namespace {
/// Looks up the mapping around `at`, of memory of `device`; its range is empty if there is none.
HandleMapping handle_mapping(const CudaDriver& cuda, int device, CUdeviceptr at) {
  HandleMapping mapping;
  unsigned kind = 0;
  int owner = -1;
  CUpointer_attribute what[] = {
      CU_POINTER_ATTRIBUTE_MEMORY_TYPE,       CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
      CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, CU_POINTER_ATTRIBUTE_MAPPING_SIZE,
      CU_POINTER_ATTRIBUTE_BUFFER_ID,         CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES};
  void* to[] = {&kind,
                &owner,
                &mapping.range.begin,
                &mapping.range.bytes,
                &mapping.id,
                &mapping.handle_types};
  static_assert(std::size(what) == std::size(to));
  const CUresult found = cuda.pointer_get_attributes(unsigned(std::size(what)), what, to, at);
  const bool fits = found == CUDA_SUCCESS && kind == CU_MEMORYTYPE_DEVICE && owner == device &&
                    mapping.id != 0 && mapping.range.begin <= at && at < mapping.range.end();
  return fits ? mapping : HandleMapping{};
}
}  // namespace

std::vector<HandleMapping> mappings_around(const CudaDriver& cuda, int device, CUdeviceptr at,
                                           std::size_t bytes, std::size_t limit) {
  std::vector<HandleMapping> found;
  const CUdeviceptr end = at + bytes;
  for (CUdeviceptr next = at; next < end; next = found.back().range.end()) {
    const HandleMapping mapping = handle_mapping(cuda, device, next);
    if (mapping.range.bytes == 0 || found.size() == limit) return {};
    found.push_back(mapping);
  }
  return found;
}

}  // namespace ccl::detail
