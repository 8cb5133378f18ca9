#pragma once

#include <ccl/types/result.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "base/io/fd.hpp"

namespace ccl::detail {

/// Zeroed memory of a GPU that this process does not see. The process of a rank on that GPU has
/// allocated it and keeps no hold on it.
struct GpuLoan {
  Fd pages;  // cuMem handle
  std::size_t bytes = 0;
  Fd dma_buf;              // of the same bytes, for RDMA devices; empty: there is none
  std::string no_dma_buf;  // why
};

/// Asks the rank on the GPU with this bus id for at least so many bytes.
using AskForLoan = std::function<Result<GpuLoan>(std::int64_t bus_id, std::size_t bytes)>;

}  // namespace ccl::detail
