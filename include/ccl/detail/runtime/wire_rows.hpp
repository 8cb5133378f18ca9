#pragma once

#include <ccl/types/wire.hpp>

#include <cstddef>
#include <vector>

namespace ccl::detail {

/// Wires of a composition on one rank: for each direction a row of each channel, with a column for
/// each rank. In large jobs a row has columns for the connected peers alone, because rows of all
/// ranks take 4.5 MiB of 1,024 ranks and 32 channels.
class WireRows {
 public:
  static constexpr int max_whole = 64;  // ranks for which a row is always whole

  WireRows() = default;
  /// `whole`: rows have a column for each rank, in jobs of any size.
  WireRows(int ranks, int channels, bool whole);

  /// Returns the wire, without slots if there is none.
  const Wire& at(bool sends, int channel, int peer) const;
  /// Enters a wire. Returns true if the rows have moved to other memory, as narrow ones may.
  bool put(bool sends, int channel, int peer, const Wire& wire);

  const std::vector<Wire>& in() const { return wires_[0]; }
  const std::vector<Wire>& out() const { return wires_[1]; }
  int columns() const { return columns_; }
  /// Column of each rank; empty if rows are whole. Column 0 of narrow rows has no wires.
  const std::vector<int>& column_of() const { return column_of_; }
  /// Rank and channel of an entry of `in` or `out`. The rank is -1 if the column is free.
  int peer_of(std::size_t entry) const;
  int channel_of(std::size_t entry) const { return int(entry) / columns_; }

 private:
  std::size_t entry(int channel, int peer) const;
  bool add_column(int peer);

  int channels_ = 0, columns_ = 0;
  std::vector<Wire> wires_[2];
  std::vector<int> column_of_, peers_;  // `peers_`: rank of each column in use, of narrow rows
};

}  // namespace ccl::detail
