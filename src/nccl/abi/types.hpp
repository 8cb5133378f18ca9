#pragma once

#include <ccl/element/data_type.hpp>

#include <algorithm>
#include <array>
#include <string_view>

#include "nccl/abi/abi.hpp"

namespace ccl::detail::nccl {

/// Types in the order of NCCL's numbers.
inline constexpr std::array nccl_types{
    DataType::int8,    DataType::uint8,    DataType::int32,       DataType::uint32,
    DataType::int64,   DataType::uint64,   DataType::float16,     DataType::float32,
    DataType::float64, DataType::bfloat16, DataType::float8_e4m3, DataType::float8_e5m2};
/// Names of ccl's functors in the order of NCCL's numbers.
inline constexpr std::array<std::string_view, ncclNumOps> nccl_ops{"sum", "prod", "max", "min",
                                                                   "avg"};

constexpr ncclDataType_t nccl_type(DataType type) {
  return ncclDataType_t(std::ranges::find(nccl_types, type) - nccl_types.begin());
}
/// Returns `ncclNumOps` for a reduction of ncclRedOpCreatePreMulSum.
constexpr ncclRedOp_t nccl_op(std::string_view name) {
  return ncclRedOp_t(std::ranges::find(nccl_ops, name) - nccl_ops.begin());
}

}  // namespace ccl::detail::nccl
