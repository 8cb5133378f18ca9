#pragma once

#include <ccl/types/word.hpp>

namespace ccl {

/// Runs of rows, one for each rank, whose lengths lie in memory that the exchange reads when it
/// runs. The memory is device memory for a GPU rank and host memory for a CPU rank. No call
/// argument depends on the lengths, so a captured graph may be replayed with other lengths.
struct CountedRows {
  Index row = 1;                     ///< elements; equal on all ranks
  const int* send_counts = nullptr;  ///< rows for each rank
  Index send_stride = 0;  ///< rows from one rank's run to the next; each rank has its own value
  /// Null, or ranks * send_stride indices: position of each row in `send`.
  const int* send_rows = nullptr;
  int* recv_counts = nullptr;  ///< rows from each rank, written by the exchange
  Index recv_stride = 0;       ///< rows; equal on all ranks
  /// Side bytes that travel with each row; rows must have at least 2048 bytes. The side bytes of
  /// the i-th row of `send` start at `i * side_bytes` and arrive with that row.
  const void* send_side = nullptr;
  void* recv_side = nullptr;
  Index side_bytes = 0;  ///< bytes for each row; equal on all ranks
};

}  // namespace ccl
