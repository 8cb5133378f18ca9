#pragma once

#include <vector>

#include "gpu/driver.hpp"

namespace ccl::detail {

/// The driver's description of the allocation around an address.
struct Allocation {
  unsigned kind = 0;  // a CUmemorytype; 0: unknown to the driver
  CUdeviceptr begin = 0;
  std::size_t bytes = 0;
  CUdeviceptr here = 0;       // address for kernels of this context; 0: none
  int device = -1;            // owner of the memory
  bool legacy = false;        // one piece with legacy IPC handles, not mapped by cuMem handles
  unsigned long long id = 0;  // unique for the life of the process
  CUdeviceptr end() const { return begin + bytes; }
};

/// Looks up an allocation. A GPU's context must be current. Takes about 1 us.
Allocation allocation_around(const CudaDriver& cuda, CUdeviceptr at);

/// Range of addresses.
struct AddressRange {
  CUdeviceptr begin = 0;
  std::size_t bytes = 0;
  CUdeviceptr end() const { return begin + bytes; }
};
/// Looks up the mapping of one cuMem handle. An allocation is then the reserved range, which may
/// contain several of them. Empty if the driver knows none.
AddressRange mapping_around(const CudaDriver& cuda, CUdeviceptr at);

/// Mapping of one cuMem handle.
struct HandleMapping {
  AddressRange range;
  unsigned long long id = 0;  // unique for the life of the process, as that of an `Allocation`
  unsigned handle_types = 0;  // kinds of handle that other processes can import
};
/// Lists the mappings of cuMem handles around the `bytes` bytes from `at` on, in the order of their
/// addresses. Empty if some byte is in no memory of `device`, or if they are more than `limit`.
std::vector<HandleMapping> mappings_around(const CudaDriver& cuda, int device, CUdeviceptr at,
                                           std::size_t bytes, std::size_t limit);

}  // namespace ccl::detail
