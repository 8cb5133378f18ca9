#pragma once

#include <ccl/detail/lanes/spin_wait.hpp>

CCL_ANY_SPACE_BEGIN

namespace ccl::detail::nccl {

/// Waits until `counter` is `times` more than `taken`, and takes these signals of `peer`. One lane.
/// Ends early at the limits of `watch`, in whose wait record the host finds what it waits for.
template <class Memory>
CCL_HD void wait_for_signals(const Word* counter, Word* taken, Word times, int peer,
                             const AbortWatch& watch) {
  const Word until = Memory::load_relaxed(taken) + times;
  {
    SpinWait<Memory> wait{watch};
    for (Word came = 0; (came = Memory::load_acquire(counter)) < until;) {
      if (wait.ends(peer, came)) break;
    }
  }
  Memory::store_relaxed(taken, until);
}

}  // namespace ccl::detail::nccl

CCL_ANY_SPACE_END
