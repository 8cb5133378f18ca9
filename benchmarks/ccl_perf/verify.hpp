#pragma once

#include <optional>
#include <vector>

#include "runner.hpp"

namespace ccl::perf {

/// A run of a receive buffer that must be the bytes of one rank's send buffer. All in bytes.
struct Piece {
  Index to = 0, bytes = 0;  // in the receive buffer
  int from = 0;
  Index at = 0;  // in that rank's send buffer
};

/// What a collective of one size looks like on each rank.
struct Shape {
  std::string op;
  int ranks = 1, rank = 0, root = 0;
  Index count = 0;                       // elements, as the collective counts them
  Index send_count = 0, recv_count = 0;  // elements of this rank's buffers
  Index bytes = 0;                       // what the size column says
  double bus_factor = 1;                 // bus bandwidth over algorithm bandwidth
  std::vector<Index> send_counts, send_offsets, recv_counts, recv_offsets;  // of AllToAllV

  /// For a message of about `bytes`, at least one element for each rank.
  static Shape of(const std::string& op, Index bytes, Index element_bytes, int ranks, int rank,
                  int root);
  /// Of a call in place: where its buffers begin in their one memory, and how much that is.
  struct Overlay {
    Index send = 0, recv = 0, all = 0;  // elements
  };
  /// As ccl and NCCL have it; none: the operation does not run in place on this rank.
  std::optional<Overlay> in_place() const;
  bool reduces() const;
  /// Whether this rank gets anything.
  bool receives() const;
  /// Of what is reduced: which element this rank's first one is the sum of.
  Index reduced_from() const;
  /// Of what is moved: everything that this rank must receive.
  std::vector<Piece> pieces(Index element_bytes) const;
};

/// This rank's data: small numbers, so that every order of reduction gives the same bits.
void fill_send(const Shape& shape, DataType type, RedOp redop, std::byte* send);
void fill_values(DataType type, RedOp redop, int ranks, int rank, Index count, std::byte* send);
void fill_moved(int from, Index bytes, std::byte* send);
/// A pattern that no result has.
constexpr int poison_byte = 0xa5;
void poison(std::byte* recv, Index bytes);
/// Elements of `recv` that are not bit for bit what the operation must give on this rank.
Index count_wrong(const Shape& shape, DataType type, RedOp redop, const std::byte* recv);
Index count_values(DataType type, RedOp redop, int ranks, Index first, Index count,
                   const std::byte* recv);
Index count_moved(const Piece& piece, Index element_bytes, const std::byte* recv);

}  // namespace ccl::perf
