#pragma once

#include <ccl/detail/lanes/spin_wait.hpp>
#include <ccl/detail/wire/ends.hpp>
#include <ccl/detail/wire/format.hpp>
#include <ccl/types/macros.hpp>

CCL_ANY_SPACE_BEGIN

namespace ccl::detail {

/// Waits until the slots of the next slice are free. The receiver's credit or `spin` ends the loop.
template <class Memory>
CCL_HD void await_credit(OutEnd& out, const SliceShape& shape, SpinWait<Memory>& spin) {
  while (!out.has_credit(shape)) {
    out.drained = Memory::load_credit(out.credit);
    if (!out.has_credit(shape) && spin.ends(out.peer, out.sent)) break;
  }
}

/// Waits until the next slice is posted. The sender's (or proxy's) post or `spin` ends the loop.
template <class Memory>
CCL_HD void await_slot(const InEnd& in, const SliceShape& shape, SpinWait<Memory>& spin) {
  while (!in.has_slice<Memory>(shape) && !spin.ends(in.peer, in.received)) {
  }
}

/// Waits for credit on every wire out, then for the slice of every wire in that counts.
template <class Proto, bool Proxied, class Step, int MaxIn, int MaxOut, class Memory>
CCL_HD void await_ends(Step step, WireEnds<MaxIn, MaxOut>& ends, SpinWait<Memory>& spin) {
  if (step.send) {
    CCL_UNROLL for (int o = 0; o < MaxOut; ++o) {
      if (ends.uses_out(o)) await_credit(ends.out[o], ends.shape, spin);
    }
  }
  if (step.recv) {
    CCL_UNROLL for (int i = 0; i < MaxIn; ++i) {
      if (!ends.uses_in(i)) continue;
      if (Proto::carries_flags && !(Proxied && ends.in[i].counted)) continue;
      await_slot(ends.in[i], ends.shape, spin);
    }
  }
}

/// Waits for a slice. Some lanes may fail and others not. Returns false on all lanes that share a
/// flag or a slot with a failed one, because no lane may fill a slot without credit.
template <class Proto, bool Proxied, class Step, class Group, class Lane, class Ends>
CCL_HD bool await_slice(Step step, Group group, const Lane& lane, Ends& ends,
                        SpinWait<typename Group::Memory>& spin) {
  if constexpr (Proto::carries_flags) {
    // Each lane polls for itself: all lanes load the same word.
    await_ends<Proto, Proxied>(step, ends, spin);
    return !step.send || lane.agree(!spin.failed());
  } else {
    if (group.rank() == 0) await_ends<Proto, Proxied>(step, ends, spin);
    return group.all(!spin.failed());  // every lane acquires what lane 0 acquired
  }
}

}  // namespace ccl::detail

CCL_ANY_SPACE_END
