#pragma once

#include <ccl/types/result.hpp>

#include "nccl/abi.hpp"

namespace ccl::detail::nccl {

/// NCCL's number for an error of ccl's.
ncclResult_t number_of(Errc code);
/// The number of what became of something. A failure's text is what ncclGetLastError says from then
/// on, and is logged.
ncclResult_t tell(const Result<void>& result);

}  // namespace ccl::detail::nccl
