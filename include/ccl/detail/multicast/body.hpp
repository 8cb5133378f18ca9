#pragma once

#include <ccl/algo/traits.hpp>
#include <ccl/detail/lanes/block_epilogue.hpp>
#include <ccl/detail/multicast/check.hpp>
#include <ccl/detail/multicast/prims.hpp>

CCL_ANY_SPACE_BEGIN

namespace ccl::detail {

/// Body of one launch over multicast memory, for an executor.
template <class Op, class Algo, class Proto, class Multicast, int Align, class R,
          class Buffers = CopiedBuffers>
struct MulticastBody {
  static_assert(check_multicast<Op, Algo, Proto, R>());
  using Work = MulticastWork<R>;
  static constexpr int max_lanes = 512;
  static constexpr int max_channels = Mailbox::max_rings;
  const Work& work;

  template <LaneGroup Group>
  using Prims = MulticastPrims<Op, Group, Multicast, R, Align, HeadsOwnShares<Algo>, Buffers>;

  /// True if the message fits into the scratch and the channels have words for their arrivals. No
  /// other code checks this.
  template <LaneGroup Group>
  static constexpr bool fits(const Work& work) {
    return work.channels <= max_channels &&
           Prims<Group>::half_packets(work) <= work.peers.half_packets;
  }
  /// Returns the tiles of each share, which is the number of groups with work.
  template <LaneGroup Group>
  static constexpr Index tiles(const Work& work) {
    return div_up<Index>(Prims<Group>::share_of(work), Prims<Group>::tile_elements);
  }
  /// Returns the maximum elements of a message, split or per share, that fits into a half of the
  /// scratch. They are a multiple of 128 bytes, so that the next part has the same alignment.
  template <LaneGroup Group>
  static constexpr Index max_elements(const Work& work) {
    using P = Prims<Group>;
    const Index rows = Index{P::Shape::shares(work)} * P::Shape::boxes;
    const Index tiles = work.peers.half_packets / (rows * P::Lane::tile_packets);
    const Index share = tiles * P::tile_elements / P::grain * P::grain;
    return work.layout.split ? share * P::Shape::shares(work) : share;
  }
  /// Sets the parts into which a launch divides what it copies. Returns false if the scratch has no
  /// tile for each rank.
  template <LaneGroup Group>
  static constexpr bool divide(Work& work) {
    const Index most = max_elements<Group>(work);
    work.part = most < work.layout.count ? most : work.layout.count;
    Work one = work;
    one.layout.count = work.part;
    work.part_share = Prims<Group>::share_of(one);
    work.row_tiles = tiles<Group>(one);
    return work.part > 0;
  }
  /// Returns the work of at most `most` elements from the `begin`-th on.
  static Work part(const Work& whole, Index begin, Index most) {
    constexpr Index size = sizeof(typename R::Type);
    Work work = whole;
    const Index left = whole.layout.count - begin;
    // A rank may have no output: null stays null.
    if (whole.input != nullptr) work.input = static_cast<const char*>(whole.input) + begin * size;
    if (whole.output != nullptr) work.output = static_cast<char*>(whole.output) + begin * size;
    work.layout.count = left < most ? left : most;
    return work;
  }
  template <LaneGroup Group>
  CCL_HD Word operator()(Group group, int channel) const {
    Prims<Group> prims{group, work, channel};
    if (prims.agree()) {
      do Algo::run(Op{}, prims);
      while (prims.next_part());
    }
    return prims.left();
  }
  CCL_HD void end(Word left, int block, int lane, int lanes) const {
    detail::count_at_end(work.epoch, left, work.first_block + block, work.blocks, lane, lanes);
  }
};

}  // namespace ccl::detail

CCL_ANY_SPACE_END
