#pragma once

#include <ccl/comm/window.hpp>

#include <cstddef>
#include <memory>

#include "nccl/abi/abi.hpp"
#include "nccl/device/kernel_window.hpp"

namespace ccl::detail::nccl {

/// Memory of all ranks of a communicator that ncclCommWindowRegister made known. The rank owns it:
/// a window that is not deregistered ends with its communicator.
struct RegisteredWindow {
  Window window;
  void* memory;                               // of this rank
  std::shared_ptr<KernelWindow> for_kernels;  // null: kernels of the program cannot use it
};

/// Fails with `Errc::invalid_argument` for a null window, and for one that is not registered.
Result<std::shared_ptr<RegisteredWindow>> window_of(ncclWindow_t window);
/// Returns the address of a rank's part from `offset` on, where `bytes` bytes lie within it.
Result<std::byte*> part_of(const RegisteredWindow& window, int rank, std::size_t offset,
                           std::size_t bytes);

}  // namespace ccl::detail::nccl
