#pragma once

#include <ccl/types/result.hpp>

#include <cstddef>
#include <memory>
#include <vector>

#include "nccl/abi/device_layouts.hpp"
#include "nccl/device/kernel_slot.hpp"

namespace ccl::detail::nccl {

/// Windows of one rank's communicator, in GPU memory: kernels search them by address
/// (ncclFindWindow). One thread at a time changes it.
class WindowTable {
 public:
  static Result<std::unique_ptr<WindowTable>> create(int device);

  /// First page, in GPU memory.
  ncclDevCommWindowTable* at() const;
  /// Adds `bytes` bytes from `base` on. Kernels that are launched later find it.
  Result<void> add(const void* base, std::size_t bytes, ncclWindow_t window);
  Result<void> remove(ncclWindow_t window);

 private:
  struct Page {
    std::unique_ptr<KernelSlot> slot;
    ncclDevCommWindowTable content{};  // copy
  };
  explicit WindowTable(int device) : device_{device} {}
  Result<void> add_page();
  static Result<void> write(const Page& page, const ncclDevCommWindowTable::Entry& entry);

  int device_;
  std::vector<Page> pages_;
};

}  // namespace ccl::detail::nccl
