#pragma once

#include <ccl/comm/communicator.hpp>
#include <ccl/element/data_type.hpp>
#include <ccl/types/counted_rows.hpp>

#include <memory>

#include <driver_types.h>

namespace ccl::detail::nccl {

/// Arguments of cclAllReduceAddRmsNorm.
struct NormCall {
  const void* input = nullptr;
  const void* residual = nullptr;
  void* sum = nullptr;
  void* out = nullptr;
  const void* weight = nullptr;
  float epsilon = 0;
  Index rows = 0, length = 0;
  DataType type = DataType::bfloat16;
  cudaStream_t stream = nullptr;
};

/// Arguments of cclExchangeRows. Elements of `rows` are bytes.
struct ExchangeCall {
  const void* send = nullptr;
  void* recv = nullptr;
  CountedRows rows;
  cudaStream_t stream = nullptr;
};

/// Calls on rows of one communicator. Each composition is created at its first call, which all
/// ranks make.
class RowCalls {
 public:
  static std::unique_ptr<RowCalls> create(const Communicator& comm);
  virtual ~RowCalls() = default;
  virtual Result<void> norm(const NormCall& call) = 0;
  virtual Result<void> exchange(const ExchangeCall& call) = 0;
};

}  // namespace ccl::detail::nccl
