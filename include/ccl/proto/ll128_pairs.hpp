#pragma once

#include <ccl/proto/ll128.hpp>
#include <ccl/types/macros.hpp>

CCL_ANY_SPACE_BEGIN

namespace ccl {

/// LL128 with two tiles as one; the bytes on the wire are equal. It suits messages that keep every
/// lane busy, because each lane has more in flight. A lane's cells lie in pairs in the user's
/// memory: first those of all lanes, then those of lanes without flags. Every access is then 16
/// bytes of whole sectors, while a tile of LL128 accesses each sector twice.
struct LL128Pairs : LL128 {
  static constexpr int batch = LL128::batch / 2;
  /// True for groups whose lanes hold two words of a line each, and elements of one cell.
  template <LaneGroup Group, int W>
  static constexpr bool fit = W == 1 && Group::width >= 8;
  template <LaneGroup Group, int W = 1>
  class Lane;
};

template <LaneGroup Group, int W>
class LL128Pairs::Lane {
  static_assert(fit<Group, W>);
  using Half = LL128::Lane<Group, W>;
  static constexpr int lanes = words_per_line / 2;    // lanes that share a line
  static constexpr int lines = Group::width / lanes;  // lines of a half, side by side
  static constexpr int step = 2 * lines * lanes;  // cells from a lane's first two to its other two

 public:
  static constexpr int cells = 4;
  static constexpr int words = cells;
  static constexpr int stride = 2;
  static constexpr int tile_cells = 2 * Half::tile_cells;
  static constexpr int tile_packets = 2 * Half::tile_packets;
  using Fragment = ccl::Fragment<words>;
  struct Arrival {
    typename Half::Arrival half[2];
  };

  explicit CCL_HD Lane(Group group) : half_{group} {
    const int lane = int(unsigned(group.rank()) % lanes),
              line = int(unsigned(group.rank()) / lanes);
    const int others = lanes - 1;  // lanes without a flag
    first_ = 2 * (lane == others ? lines * others + line : line * others + lane);
  }

  CCL_HD int cell(int c) const { return first_ + (c < 2 ? c : step + c - 2); }
  CCL_HD bool contains(int c) const { return c < 2 || half_.contains(1); }

  /// Stores the tile. A lane with flags has one cell in each half.
  CCL_HD void store(Packet* tile, const Fragment& f, Word flag) const {
    half_.store(tile, {{f.word[0], f.word[1]}}, flag);
    half_.store(tile + Half::tile_packets, {{half_.contains(1) ? f.word[2] : f.word[1], f.word[3]}},
                flag);
  }
  CCL_HD Arrival load(const Packet* tile) const {
    return {{half_.load(tile), half_.load(tile + Half::tile_packets)}};
  }
  CCL_HD bool has_arrived(const Arrival& a, Word flag) const {
    return half_.has_arrived(a.half[0], flag) & half_.has_arrived(a.half[1], flag);
  }
  CCL_HD bool agree(bool vote) const { return half_.agree(vote); }
  CCL_HD Fragment unpack(const Arrival& a) const {
    const auto one = half_.unpack(a.half[0]), other = half_.unpack(a.half[1]);
    return {{one.word[0], half_.contains(1) ? one.word[1] : other.word[0], other.word[0],
             other.word[1]}};
  }

 private:
  Half half_;
  int first_;  // first cell of the lane
};

}  // namespace ccl

CCL_ANY_SPACE_END
