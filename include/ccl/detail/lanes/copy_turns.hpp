#pragma once

#include <ccl/detail/lanes/bulk_copies.hpp>
#include <ccl/detail/lanes/copy_run.hpp>
#include <ccl/types/macros.hpp>

CCL_ANY_SPACE_BEGIN

namespace ccl::detail {

/// Copies several runs of a list, a piece of each in turn, beginning with run `first`. All lanes.
/// The first lane sees all of its stores on return, so a `sync` and then a release publish them.
///
/// Blocks that send to several GPUs spread the traffic over them at any time. Among 4 H200, 32
/// blocks that send 64 MiB to each of 3 peers, and copy as much on the GPU itself, take 587 us in
/// turns of 16 KiB and 772 us run after run (docs/validation/calls.md).
template <LaneGroup Group>
CCL_HD void copy_in_turns(Group group, const TurnRuns& runs, int first) {
  constexpr Index piece = Index{Group::width} * 8 * sizeof(Packet);
  for (TurnCursor turn{runs, first, piece}; turn.left(); turn.next()) {
    const TurnRuns::Run& run = runs.run[turn.run()];
    const Index left = run.bytes - turn.at();
    copy_run(group, run.to + turn.at(), run.from + turn.at(), left < piece ? left : piece);
  }
}

#if defined(__CUDACC__)
/// Copies by the bulk copy engine if it can, and that is faster. Returns false if it does not.
template <LaneGroup Group>
CCL_DEVICE bool copy_in_turns_by_engine(Group group, const TurnRuns& runs, int first) {
  if constexpr (Group::width >= 512) {
    // Shorter runs were not faster: 32 blocks take 20 us for 32 KiB to each of 4, both ways.
    constexpr Index worth = Index{64} << 10;
    Word bits = 0;
    Index longest = 0;
    for (int i = 0; i < runs.count; ++i) {
      const TurnRuns::Run& run = runs.run[i];
      bits |= reinterpret_cast<cuda::std::uintptr_t>(run.to) |
              reinterpret_cast<cuda::std::uintptr_t>(run.from) | Word(run.bytes);
      longest = longest < run.bytes ? run.bytes : longest;
    }
    if (bits % sizeof(Packet) != 0 || longest < worth) return false;
    extern __shared__ BulkCopyMemory bulk_copy_memory[];
    if (group.rank() == 0) TurnsBulkCopies{bulk_copy_memory->turns, runs, first}.run();
    return true;
  }
  return false;
}
#endif

/// Copies as `copy_in_turns` does; `engine`: the launch has shared memory for the bulk copy engine.
template <LaneGroup Group>
CCL_HD void copy_long_in_turns(Group group, const TurnRuns& runs, int first, bool engine) {
  NV_IF_TARGET(NV_PROVIDES_SM_90,
               (if (engine && copy_in_turns_by_engine(group, runs, first)) return;))
  (void)engine;
  copy_in_turns(group, runs, first);
}

}  // namespace ccl::detail

CCL_ANY_SPACE_END
