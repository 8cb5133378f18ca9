#pragma once

#include <optional>
#include <vector>

#include "runner.hpp"

namespace ccl::perf {

/// Run of a receive buffer that must equal bytes of one rank's send buffer. All members are in
/// bytes.
struct Piece {
  Index to = 0, bytes = 0;  // in the receive buffer
  int from = 0;
  Index at = 0;  // in that rank's send buffer
};

/// Shape of a collective of one size on one rank.
struct Shape {
  std::string op;
  int ranks = 1, rank = 0, root = 0;
  Index count = 0;                       // elements, in the collective's unit
  Index send_count = 0, recv_count = 0;  // elements of this rank's buffers
  Index bytes = 0;                       // bytes of the size column
  double bus_factor = 1;                 // bus bandwidth over algorithm bandwidth
  std::vector<Index> send_counts, send_offsets, recv_counts, recv_offsets;  // for AllToAllV

  /// Returns the shape for a message of about `bytes` bytes, with at least one element for each
  /// rank.
  static Shape of(const std::string& op, Index bytes, Index element_bytes, int ranks, int rank,
                  int root);
  /// Placement of a call in place: offsets of its buffers in one block, and the size of the block.
  struct Overlay {
    Index send = 0, recv = 0, all = 0;  // elements
  };
  /// Returns the placement of ccl and NCCL, or nothing if the operation cannot run in place on this
  /// rank.
  std::optional<Overlay> in_place() const;
  bool reduces() const;
  /// True if this rank receives data.
  bool receives() const;
  /// Returns the element of which this rank's first result is the sum, for operations that reduce.
  Index reduced_from() const;
  /// Returns everything that this rank must receive, for operations that move data.
  std::vector<Piece> pieces(Index element_bytes) const;
};

/// Fills this rank's data with small numbers. Every order of reduction gives the same bits.
void fill_send(const Shape& shape, DataType type, RedOp redop, std::byte* send);
void fill_values(DataType type, RedOp redop, int ranks, int rank, Index count, std::byte* send);
void fill_moved(int from, Index bytes, std::byte* send);
/// Pattern that no result has.
constexpr int poison_byte = 0xa5;
void poison(std::byte* recv, Index bytes);
/// Returns the number of elements of `recv` that differ in any bit from the result of the operation
/// on this rank.
Index count_wrong(const Shape& shape, DataType type, RedOp redop, const std::byte* recv);
Index count_values(DataType type, RedOp redop, int ranks, Index first, Index count,
                   const std::byte* recv);
Index count_moved(const Piece& piece, Index element_bytes, const std::byte* recv);

}  // namespace ccl::perf
