#pragma once

#include <ccl/types/word.hpp>

namespace ccl {

/// Runs of rows, one for each rank, whose lengths lie in memory where the exchange runs: on the GPU
/// or, of CPU ranks, in theirs. Nobody else needs to know them, so a captured graph may be replayed
/// with others.
struct CountedRows {
  Index row = 1;                     // elements; the same on all ranks
  const int* send_counts = nullptr;  // rows for each rank
  Index send_stride = 0;           // rows from one rank's run to the next's; each rank has its own
  const int* send_rows = nullptr;  // null, or ranks * send_stride: where in `send` each row is
  int* recv_counts = nullptr;      // rows from each rank, written
  Index recv_stride = 0;           // the same on all ranks
  // Bytes that go with each row, where rows have 2048 bytes or more: those of `send`'s i-th row lie
  // at i * side_bytes, and arrive as the row does.
  const void* send_side = nullptr;
  void* recv_side = nullptr;
  Index side_bytes = 0;  // the same on all ranks
};

}  // namespace ccl
