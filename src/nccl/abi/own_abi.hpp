#pragma once

// C interface of what NCCL's interface has no function for. The Python package calls it.
#include "nccl/abi/abi.hpp"

#pragma GCC visibility push(default)
extern "C" {

/// Options of a communicator. A negative number and a null text leave the setting as it is.
struct cclCommOptions_t {
  std::size_t size;  ///< sizeof(cclCommOptions_t)
  double timeout_s;
  double init_timeout_s;
  long long memory_budget_bytes;
  int check;  ///< 0 or 1
  int channels;
  const char* name;
  const char* tune_file;
};

/// Creates a rank as ncclCommInitRank does, with options of ccl.
ncclResult_t cclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                             const cclCommOptions_t* options);
/// Returns the failure of the communicator, if it has failed; ncclGetLastError has its text.
ncclResult_t cclCommStatus(ncclComm_t comm);
/// Writes the state of all ranks, and the rank that is behind, to `text`, which has `bytes` bytes.
/// A longer text is cut. Takes at most 2 s. Any thread may call it.
ncclResult_t cclCommReport(ncclComm_t comm, char* text, std::size_t bytes);
/// Writes the operations that the rank remembers to files in `folder`; see `Communicator::dump`.
ncclResult_t cclCommDump(ncclComm_t comm, const char* folder);
/// Sets `bytes` to the memory of connections and scratch that the rank has allocated.
ncclResult_t cclCommMemoryUsed(ncclComm_t comm, long long* bytes);
/// Writes the name of the host of `rank` to `text`, which has `bytes` bytes.
ncclResult_t cclCommHost(ncclComm_t comm, int rank, char* text, std::size_t bytes);
/// Blocks until all ranks have called it. It does not wait for what the ranks' streams run.
ncclResult_t cclCommBarrier(ncclComm_t comm);
/// All-reduce of `rows` rows of `length` elements, addition of a residual and RMSNorm, in one
/// kernel: h = T(sum over ranks + residual), out = T(h / sqrt(mean(h * h) + epsilon) * weight).
/// `residual`, `sum` (where h is stored) and `weight` may be null. `type` is ncclBfloat16 or
/// ncclHalf.
ncclResult_t cclAllReduceAddRmsNorm(const void* input, std::size_t rows, std::size_t length,
                                    const void* residual, void* sum, void* out, const void* weight,
                                    float epsilon, ncclDataType_t type, ncclComm_t comm,
                                    cudaStream_t stream);

/// Rows of an exchange whose counts the stream reads; see `ccl::CountedRows`.
struct cclCountedRows_t {
  std::size_t size;       ///< sizeof(cclCountedRows_t)
  std::size_t row_bytes;  ///< equal on all ranks
  const int* send_counts;
  std::size_t send_stride;
  const int* send_rows;
  int* recv_counts;
  std::size_t recv_stride;  ///< equal on all ranks
  const void* send_side;
  void* recv_side;
  std::size_t side_bytes;  ///< equal on all ranks
};
/// Sends rows whose counts are in memory that the GPU reads; see `AllToAllV` and `counted`.
ncclResult_t cclExchangeRows(const void* send, void* recv, const cclCountedRows_t* rows,
                             ncclComm_t comm, cudaStream_t stream);

/// Ends all operations on all ranks, with the reason `why`. The handle stays.
ncclResult_t cclCommEnd(ncclComm_t comm, const char* why);
}
#pragma GCC visibility pop
