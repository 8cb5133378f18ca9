#pragma once

#include <ccl/detail/lanes/peer_view.hpp>
#include <ccl/detail/lanes/spin_wait.hpp>

namespace ccl::detail {

/// Arguments of one launch of an exchange whose counts lie in memory: a run of rows of `row_bytes`
/// for each rank. Every rank sends one message to every other, also without rows. All ranks make
/// the same launches.
struct CountedWork {
  static constexpr int max_ranks = PeerView::max_ranks;
  /// Minimum bytes of a row that has its own tiles and may lie anywhere in the sender's memory.
  static constexpr Index apart_bytes = 2048;

  PeerView peers;
  Epoch state;  // shared with the launches of `PeerExchangeWork`
  const char* send = nullptr;
  char* recv = nullptr;
  const int* send_counts = nullptr;  // rows for each rank
  int* recv_counts = nullptr;        // rows from each rank; written
  // Null: rank p's rows are those from p * send_stride on. Else row i for rank p is the
  // send_rows[p * send_stride + i]-th of `send`.
  const int* send_rows = nullptr;
  Index row_bytes = 0;
  // Bytes that go with each row, of rows that are apart: those of the i-th of `send` are at
  // i * side_bytes, and arrive as the row does.
  const char* send_side = nullptr;
  char* recv_side = nullptr;
  Index side_bytes = 0;
  int send_stride = 0;  // rows between the runs of two ranks; each rank may have its own
  int recv_stride = 0;  // the same on all ranks
  int first = 0;        // first row of each run in this launch
  int most = 0;         // maximum rows of each run in this launch
  Index box_packets = 0;
  int row_tiles = 0;    // of a row that is apart, without its side; 0: rows are not apart
  int piece_tiles = 0;  // with it
  int piece_runs = 0;   // of so many tiles as a lane group has in flight
  int channels = 1;
  int blocks = 1;
  AbortWatch watch;

  /// Rows for one rank that there is room for, at both ends. Those of a peer, `recv_stride`.
  CCL_HD int max_sent() const { return send_stride < recv_stride ? send_stride : recv_stride; }
};

}  // namespace ccl::detail
