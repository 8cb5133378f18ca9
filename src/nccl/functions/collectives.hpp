#pragma once

#include <ccl/element/data_type.hpp>
#include <ccl/types/result.hpp>

#include "nccl/abi/abi.hpp"

namespace ccl::detail::nccl {

/// Fails with `Errc::invalid_argument` for a number that is no type of NCCL's.
Result<DataType> type_of(ncclDataType_t type);

}  // namespace ccl::detail::nccl
