#pragma once

#include <ccl/types/word.hpp>

#include <atomic>

namespace ccl {

// Counts of a `Wire` in host memory, as the proxy task of a transport of one's own reads and writes
// them. Each count is in steps since the wire was made. Lanes access the same words, so no plain
// access is valid.

/// Loads the count of posted steps. Slots and sizes of these steps are visible to the caller.
inline Word load_posted(const Word* posted) {
  return std::atomic_ref{*const_cast<Word*>(posted)}.load(std::memory_order_acquire);
}
/// Publishes `steps` as posted, after all earlier writes to slots and sizes.
inline void post(Word* posted, Word steps) {
  std::atomic_ref{*posted}.store(steps, std::memory_order_release);
}
/// Loads the count of drained steps. The slots of these steps are free.
inline Word load_drained(const Word* drained) {
  return load_posted(drained);
}
/// Publishes `steps` as drained, after all earlier reads of slots: their owner may refill them.
inline void drain(Word* drained, Word steps) {
  post(drained, steps);
}

}  // namespace ccl
