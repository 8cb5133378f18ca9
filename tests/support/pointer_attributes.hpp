#pragma once

#include <cuda.h>

#include <cstddef>

namespace ccl::test {

/// Memory as a fake driver knows it.
struct FakeAllocation {
  CUdeviceptr begin = 0;
  std::size_t bytes = 0;
  unsigned kind = CU_MEMORYTYPE_DEVICE;
  CUdeviceptr on_device = 0;  // address for kernels of what was asked about; 0: not reachable
  int device = 0;
  bool legacy = false;            // has handles of the legacy kind
  unsigned long long number = 0;  // identity, which is not used again
  CUdeviceptr mapped = 0;         // where the mapping of a handle begins; 0: as the allocation
  std::size_t mapped_bytes = 0;
  unsigned handle_types = CU_MEM_HANDLE_TYPE_NONE;  // by which others can import it
};

/// Answers `cuPointerGetAttributes` for an address in `memory`.
inline CUresult answer_attributes(const FakeAllocation& memory, unsigned count,
                                  const CUpointer_attribute* what, void** to) {
  for (unsigned n = 0; n < count; ++n) {
    switch (what[n]) {
      case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *static_cast<unsigned*>(to[n]) = memory.kind;
        break;
      case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *static_cast<CUdeviceptr*>(to[n]) = memory.begin;
        break;
      case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        *static_cast<std::size_t*>(to[n]) = memory.bytes;
        break;
      case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        *static_cast<CUdeviceptr*>(to[n]) = memory.on_device;
        break;
      case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *static_cast<int*>(to[n]) = memory.device;
        break;
      case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        *static_cast<int*>(to[n]) = int(memory.legacy);
        break;
      case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        *static_cast<unsigned long long*>(to[n]) = memory.number;
        break;
      case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        *static_cast<CUdeviceptr*>(to[n]) = memory.mapped != 0 ? memory.mapped : memory.begin;
        break;
      case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
        *static_cast<std::size_t*>(to[n]) = memory.mapped != 0 ? memory.mapped_bytes : memory.bytes;
        break;
      case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        *static_cast<unsigned*>(to[n]) = memory.handle_types;
        break;
      default:
        return CUDA_ERROR_INVALID_VALUE;
    }
  }
  return CUDA_SUCCESS;
}

}  // namespace ccl::test
