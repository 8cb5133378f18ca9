#pragma once

#include <ccl/types/result.hpp>

#include "nccl/abi/abi.hpp"

namespace ccl::detail::nccl {

/// NCCL's number for a code of ccl.
ncclResult_t number_of(Errc code);
/// NCCL's number for a result. A failure is logged, and its text is what ncclGetLastError returns
/// from then on.
ncclResult_t tell(const Result<void>& result) noexcept;
/// Makes the text of a failure that no call has returned the last one of the process. Logs nothing.
void keep_text(const Error& error) noexcept;

}  // namespace ccl::detail::nccl
