#pragma once

#include <ccl/algo/rank_counts.hpp>
#include <ccl/detail/lanes/block_epilogue.hpp>
#include <ccl/detail/lanes/phases.hpp>
#include <ccl/detail/peer/direct_reduce.hpp>
#include <ccl/detail/peer/direct_work.hpp>
#include <ccl/proto/lane_group.hpp>
#include <ccl/types/macros.hpp>
#include <ccl/types/word.hpp>

CCL_ANY_SPACE_BEGIN

namespace ccl::detail {

/// Body of one launch of a reduction by `Direct`, for an executor.
template <class Op, class Algo, class R, int Most = max_unrolled_ranks>
struct DirectBody {
  using Work = DirectWork<R>;
  static constexpr int max_lanes = 512;
  const Work& work;

  /// Cuts the shares, on the host. Returns false if the scratch has no slot for each ring.
  template <LaneGroup Group>
  static constexpr bool prepare(Work& work) {
    using Reduce = DirectReduce<Op, Group, R, Most>;
    using Shares = typename Reduce::Shares;
    const Index share = Shares::largest(work.layout, work.peers.ranks);
    const Index room = Shares::slot_elements(work.peers, work.max_rings);
    if (room == 0) return false;
    const Index tile = Reduce::tile_elements, batch = tile * Reduce::batch;
    // Short shares go to all rings.
    const Index slice = share / batch < work.max_rings ? tile : batch;
    work.slice = div_up<Index>(slice, Shares::grain) * Shares::grain;
    if (work.slice > room) work.slice = room;
    const Index slices = div_up<Index>(share, work.slice);
    work.rings = int(slices < work.max_rings ? slices : work.max_rings);
    return true;
  }
  template <LaneGroup Group>
  CCL_HD Word operator()(Group group, int channel) const {
    DirectReduce<Op, Group, R, Most, notes_of<Algo, Group>> reduce{group, work, channel};
    Algo::run(reduce);
    return reduce.left();
  }
  /// Counts the launch in the copies of this block and of absent blocks.
  CCL_HD void end(Word left, int block, int lane, int lanes) const {
    detail::count_at_end(work.epoch, left, block, work.blocks, lane, lanes);
  }
};

}  // namespace ccl::detail

CCL_ANY_SPACE_END
