#pragma once

#include "gpu/driver.hpp"

namespace ccl::detail {

/// What the driver knows of the allocation around an address.
struct Allocation {
  unsigned kind = 0;  // a CUmemorytype; 0: the driver knows of none
  CUdeviceptr begin = 0;
  std::size_t bytes = 0;
  CUdeviceptr here = 0;       // where kernels of this context find the address; 0: nowhere
  int device = -1;            // whose memory it is
  bool legacy = false;        // one piece, with legacy IPC handles; not mapped of cuMem handles
  unsigned long long id = 0;  // unique for the life of the process
  CUdeviceptr end() const { return begin + bytes; }
};

/// With a GPU's context current; takes about a microsecond.
Allocation allocation_around(const CudaDriver& cuda, CUdeviceptr at);

}  // namespace ccl::detail
