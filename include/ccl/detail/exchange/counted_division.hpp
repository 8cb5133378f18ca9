#pragma once

#include <ccl/detail/exchange/counted_work.hpp>
#include <ccl/detail/lanes/peer_view.hpp>
#include <ccl/types/macros.hpp>
#include <ccl/types/word.hpp>

CCL_ANY_SPACE_BEGIN

namespace ccl::detail {

/// Division of the messages of a `CountedExchange`. `Lane` has the size of a tile.
template <class Lane>
struct CountedDivision {
  /// Division of one message. A message is cut into pieces, whose tiles are adjacent in the box. A
  /// piece is one row if rows are apart, and the whole message otherwise.
  ///
  /// Pieces are cut into runs, which the parts process in turn.
  struct Message {
    Index bytes;  // bytes of a piece, without side data
    int tiles;    // tiles of a piece
    int main;     // tiles of a piece before those of its side data
    int piece_runs;
    int runs;
  };
  struct Run {
    int piece, tile, end;
  };

  static constexpr int run = 4;  // tiles in flight per part, if there are many
  static constexpr int tile_bytes = Lane::tile_cells * int(sizeof(Word));

  /// Completes the arguments on the host, before `tiles`, `max_rows` and the launch.
  static void assign_tiles(CountedWork& work) {
    work.box_packets = box_tiles(work.peers) * Lane::tile_packets;
    const bool apart = work.row_bytes >= CountedWork::apart_bytes;
    work.row_tiles = apart ? int(div_up<Index>(work.row_bytes, tile_bytes)) : 0;
    work.piece_tiles =
        work.row_tiles + (apart ? int(div_up<Index>(work.side_bytes, tile_bytes)) : 0);
    work.piece_runs = div_up(work.piece_tiles, run);
  }
  /// Returns the tiles of a message of `rows` rows.
  CCL_HD static constexpr Index tiles(const CountedWork& work, Index rows) {
    return work.row_tiles > 0 ? rows * work.piece_tiles
                              : div_up<Index>(rows * work.row_bytes, tile_bytes);
  }
  /// Returns the maximum rows of each message in a launch, as many as a box holds. 0 if a box holds
  /// no row.
  static constexpr int max_rows(const CountedWork& work) {
    const Index room = box_tiles(work.peers);
    const Index rows =
        work.row_tiles > 0 ? room / work.piece_tiles : room * tile_bytes / work.row_bytes;
    return int(rows < (1 << 30) ? rows : 1 << 30);
  }
  /// Divides a message of `rows` rows into runs of `N` tiles.
  template <int N>
  CCL_HD static Message cut(const CountedWork& work, int rows) {
    Message m;
    if (work.row_tiles > 0) {
      m.bytes = work.row_bytes;
      m.main = work.row_tiles;
      m.tiles = work.piece_tiles;
      m.piece_runs = N == 1 ? m.tiles : work.piece_runs;
      m.runs = rows * m.piece_runs;
    } else {
      m.bytes = rows * work.row_bytes;
      m.main = m.tiles = int(div_up<Index>(m.bytes, tile_bytes));
      m.runs = m.piece_runs = div_up(m.tiles, N);
    }
    return m;
  }
  template <int N>
  CCL_HD static Run run_of(const Message& m, int r) {
    const int piece = m.runs == m.piece_runs ? 0 : int(unsigned(r) / unsigned(m.piece_runs));
    const int tile = (r - piece * m.piece_runs) * N;
    return {piece, tile, tile + N < m.tiles ? tile + N : m.tiles};
  }

 private:
  static constexpr Index box_tiles(const PeerView& peers) {
    return peers.half_packets / peers.ranks / Lane::tile_packets;
  }
};

}  // namespace ccl::detail

CCL_ANY_SPACE_END
