#pragma once

#include <ccl/algo/rank_counts.hpp>
#include <ccl/detail/lanes/block_epilogue.hpp>
#include <ccl/detail/lanes/peer_view.hpp>
#include <ccl/detail/lanes/phases.hpp>
#include <ccl/detail/peer/prims.hpp>
#include <ccl/detail/peer/work.hpp>
#include <ccl/proto/lane_group.hpp>
#include <ccl/types/macros.hpp>
#include <ccl/types/word.hpp>

CCL_ANY_SPACE_BEGIN

namespace ccl::detail {

/// Shape of a kernel over a peer view, as values.
struct PeerShape {
  int ranks;  // maximum number of ranks, and rows of a box
  int boxes, tile_elements, tile_packets, grain;

  /// Returns the elements of a share.
  constexpr Index share(const Layout& layout, int of_ranks) const {
    if (!layout.split) return layout.count;
    return div_up<Index>(div_up<Index>(layout.count, of_ranks), grain) * grain;
  }
  constexpr Index tiles(Index share) const { return div_up<Index>(share, tile_elements); }
  /// Returns the packets of each half of the scratch that shares of that size take.
  constexpr Index half_packets(Index share) const {
    return tiles(share) * tile_packets * ranks * boxes;
  }
  /// Returns the maximum elements of a message, split or per share, that fits into a half of the
  /// scratch. They are a multiple of 128 bytes, so that the next part has the same alignment.
  constexpr Index max_elements(const Layout& layout, const PeerView& peers) const {
    const Index share = peers.half_packets / half_packets(1) * tile_elements / grain * grain;
    const Index most = layout.split ? share * peers.ranks : share;
    const Index limit = (Index{1} << 30) / (layout.split ? 1 : ranks);
    return most < limit ? most : limit;
  }
};

/// Body of one launch over a peer view, for an executor.
template <class Op, class Algo, class Proto, int Align, class R, int Ranks,
          int Fewest = fewest_ranks(Ranks)>
struct PeerBody {
  using Work = PeerWork<R>;
  static constexpr int max_lanes = 512;
  const Work& work;

  template <LaneGroup Group>
  static constexpr PeerShape shape() {
    using Prims = PeerPrims<Group, Proto, R, Align, Ranks>;
    return {Ranks, Algo::boxes, Prims::tile_elements, Prims::Lane::tile_packets, Prims::grain};
  }
  /// True if the message fits into the scratch. No other code checks this.
  template <LaneGroup Group>
  static constexpr bool fits(const Work& work) {
    return shape<Group>().half_packets(share<Group>(work)) <= work.peers.half_packets;
  }
  /// Returns the tiles of each share, which is the number of groups with work.
  template <LaneGroup Group>
  static constexpr Index tiles(const Work& work) {
    return shape<Group>().tiles(share<Group>(work));
  }
  /// Returns the packets of each half of the scratch that the message takes, a multiple of 128
  /// bytes.
  template <LaneGroup Group>
  static constexpr Index packets(const Work& work) {
    return div_up<Index>(shape<Group>().half_packets(share<Group>(work)), 8) * 8;
  }
  template <LaneGroup Group>
  static constexpr Index share(const Work& work) {
    return shape<Group>().share(work.layout, work.peers.ranks);
  }

  template <LaneGroup Group>
  CCL_HD Word operator()(Group group, int channel) const {
    using Prims =
        typename PrimsOf<Group, Proto, R, Align, Ranks, Fewest, notes_of<Algo, Group>>::Type;
    Prims prims{group, work, channel};
    Algo::run(Op{}, prims);
    return prims.left();
  }
  /// Counts the launch in the copy of this block. Also counts it in the copies of absent blocks,
  /// unless `count_launch` has done so.
  CCL_HD void end(Word left, int block, int lane, int lanes) const {
    const int all = work.blocks + work.other_blocks;
    detail::count_at_end(work.epoch, left, work.first_block + block, all, lane, lanes);
  }
};

}  // namespace ccl::detail

CCL_ANY_SPACE_END
