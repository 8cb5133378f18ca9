#pragma once

#include <ccl/types/result.hpp>

#include "nccl/abi/abi.hpp"

namespace ccl::detail::nccl {

/// NCCL's number for a code of ccl.
ncclResult_t number_of(Errc code);
/// NCCL's number for a result. A failure is logged, and its text is what ncclGetLastError returns
/// from then on.
ncclResult_t tell(const Result<void>& result) noexcept;

}  // namespace ccl::detail::nccl
