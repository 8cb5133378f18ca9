#pragma once

#include <ccl/detail/lanes/peer_view.hpp>
#include <ccl/detail/lanes/spin_wait.hpp>
#include <ccl/types/macros.hpp>

CCL_ANY_SPACE_BEGIN

namespace ccl::detail {

/// Arguments of one launch of an exchange whose counts lie in memory: a run of rows of `row_bytes`
/// bytes for each rank. Every rank sends one message to every other rank, even if it has no rows.
/// All ranks make the same launches.
struct CountedWork {
  /// Minimum bytes of a row that has its own tiles and may lie anywhere in the sender's memory.
  static constexpr Index apart_bytes = 2048;

  PeerView peers;
  Epoch state;  // shared with the launches of `PeerExchangeWork`
  const char* send = nullptr;
  char* recv = nullptr;
  const int* send_counts = nullptr;  // rows for each rank
  int* recv_counts = nullptr;        // rows from each rank; written
  // Null: the rows for rank p begin at row p * send_stride. Otherwise row i for rank p is row
  // send_rows[p * send_stride + i] of `send`.
  const int* send_rows = nullptr;
  Index row_bytes = 0;
  // Side data that travels with each row if rows are apart. The side data of row i of `send` begins
  // at byte i * side_bytes. It arrives at the index of its row.
  const char* send_side = nullptr;
  char* recv_side = nullptr;
  Index side_bytes = 0;
  int send_stride = 0;  // rows between the runs of two ranks; may differ between ranks
  int recv_stride = 0;  // the same on all ranks
  int first = 0;        // first row of each run in this launch
  int most = 0;         // maximum rows of each run in this launch
  Index box_packets = 0;
  int row_tiles = 0;    // tiles of a row without side data; 0: rows are not apart
  int piece_tiles = 0;  // tiles of a row with side data
  int piece_runs = 0;   // runs of a row with side data
  int channels = 1;
  int blocks = 1;
  AbortWatch watch;

  /// Returns the maximum rows for one rank, limited by the room at both ends. The maximum from one
  /// rank is `recv_stride`.
  CCL_HD int max_sent() const { return send_stride < recv_stride ? send_stride : recv_stride; }
};

}  // namespace ccl::detail

CCL_ANY_SPACE_END
