#pragma once

#include <ccl/types/result.hpp>

#include <array>
#include <cstddef>
#include <span>

#include "base/io/fd.hpp"
#include "gpu/allocation.hpp"

namespace ccl::detail {

/// cuMem handle of GPU memory, as one process gives it to another: a descriptor or, without one,
/// the bytes of a fabric handle.
struct SharedHandle {
  std::size_t bytes = 0;  // of the memory
  Fd fd;
  std::array<std::byte, 64> fabric{};
};

/// True if other processes can import the handle of a mapping.
bool can_export(const HandleMapping& mapping);
/// Exports the handle of a mapping. Fails if it is mapped no more. A context must be current.
Result<SharedHandle> export_handle(const CudaDriver& cuda, const HandleMapping& mapping);
/// Imports the handle of a descriptor or, if `fd` is empty, a fabric handle. The caller releases
/// it. A context must be current.
Result<CUmemGenericAllocationHandle> import_handle(const CudaDriver& cuda, const Fd& fd,
                                                   std::span<const std::byte, 64> fabric);

}  // namespace ccl::detail
