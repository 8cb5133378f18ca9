#pragma once

// Memory of a program that has cuMem handles, as PyTorch's expandable segments: addresses into
// which handles are mapped one after the other. For GPUs of `install_gpus`.
#include <cstddef>
#include <vector>

#include "gpu/driver.hpp"
#include "support/catch.hpp"

namespace ccl::test {

class HandleMemory {
 public:
  /// Reserves addresses for `pieces` handles of `piece` bytes on a device, and maps none.
  HandleMemory(int device, std::size_t pieces, std::size_t piece)
      : device_{device}, pieces_{pieces}, piece_{piece}, is_mapped_(pieces, false) {
    REQUIRE(cuda().mem_address_reserve(&at_, pieces * piece, 0, 0, 0) == CUDA_SUCCESS);
  }
  ~HandleMemory() {
    for (std::size_t n = 0; n < pieces_; ++n) unmap(n);
    (void)cuda().mem_address_free(at_, pieces_ * piece_);
  }
  HandleMemory(const HandleMemory&) = delete;
  HandleMemory& operator=(const HandleMemory&) = delete;

  /// Maps fresh memory as piece n, whose first word is `mark`.
  void map(std::size_t n, int mark) {
    CUmemAllocationProp how{};
    how.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    how.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    how.location.id = device_;
    CUmemGenericAllocationHandle handle = 0;
    CUmemAccessDesc access{how.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    const CUdeviceptr at = at_ + n * piece_;
    REQUIRE(cuda().mem_create(&handle, piece_, &how, 0) == CUDA_SUCCESS);
    REQUIRE(cuda().mem_map(at, piece_, 0, handle, 0) == CUDA_SUCCESS);
    REQUIRE(cuda().mem_set_access(at, piece_, &access, 1) == CUDA_SUCCESS);
    (void)cuda().mem_release(handle);
    is_mapped_[n] = true;
    *reinterpret_cast<int*>(at) = mark;
  }
  void unmap(std::size_t n) {
    if (is_mapped_[n]) (void)cuda().mem_unmap(at_ + n * piece_, piece_);
    is_mapped_[n] = false;
  }
  char* piece(std::size_t n) const { return reinterpret_cast<char*>(at_ + n * piece_); }

 private:
  static const detail::CudaDriver& cuda() { return **detail::cuda_driver(); }

  int device_;
  std::size_t pieces_, piece_;
  std::vector<bool> is_mapped_;
  CUdeviceptr at_ = 0;
};

}  // namespace ccl::test
