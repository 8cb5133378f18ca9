#pragma once

#include <ccl/types.hpp>

namespace ccl {

/// What a lane that ran out of patience leaves for the host: who it waited for, and where.
struct GaveUp {
  Word peer = 0;  // rank + 1; 0: nobody's deadline passed
  Word step = 0;  // steps of that wire done before
};

/// How long lanes wait. Lives in memory that lanes and the host share.
struct Watch {
  const Word* stop = nullptr;  // 0 while all is well: see `Status`
  GaveUp* gave_up = nullptr;   // written once, by the first lane whose deadline passes
  Word deadline_ns = 0;        // of one wait without progress; 0: for ever
  Word* waits = nullptr;       // `WaitsFor`, the latest of any lane, for diagnosis; null: not kept
};

/// For whom a lane has begun to wait, and at which step of that wire: in one word.
struct WaitsFor {
  int peer = -1;  // nobody
  Word step = 0;
  CCL_HD static constexpr Word pack(int peer, Word step) {
    return Word(peer + 1) << 40 | (step & step_mask);
  }
  CCL_HD static constexpr WaitsFor unpack(Word word) {
    return {int(word >> 40) - 1, word & step_mask};
  }

 private:
  static constexpr Word step_mask = (Word{1} << 40) - 1;
};

/// Ends every spin loop that its peers do not end. A launch that gave up once runs through without
/// waiting again. `Memory::pause()` is called on each failed poll; the status word and the clock
/// are looked at only every `check_every`-th.
template <class Memory>
class Patience {
 public:
  /// `watch` must outlive it: kernels leave it where their arguments are, not in registers.
  explicit CCL_HD Patience(const Watch& watch) : watch_{watch} {}

  CCL_HD constexpr bool gave_up() const { return gave_up_; }

  /// Counts a failed poll for something that `peer` owes us. True: give up. A lane that cannot tell
  /// who is late says -1 and leaves the deadline to others.
  CCL_HD bool ends(int peer, Word step) {
    if (gave_up_) return true;
    Memory::pause();
    if (++polls_ % Memory::check_every != 0) return false;
    if (Memory::load_relaxed(watch_.stop) != 0 ||
        Memory::load_relaxed(&watch_.gave_up->peer) != 0) {
      return gave_up_ = true;
    }
    if (peer < 0) return false;
    const Word now = Memory::now_ns();
    if (since_ == 0 || step != step_ || peer != peer_) {
      since_ = now;
      step_ = step;
      peer_ = peer;
      if (watch_.waits != nullptr) Memory::store_relaxed(watch_.waits, WaitsFor::pack(peer, step));
      return false;
    }
    if (watch_.deadline_ns == 0 || now - since_ < watch_.deadline_ns) return false;
    Memory::store_relaxed(&watch_.gave_up->step, step);
    Memory::store_release(&watch_.gave_up->peer, Word(peer + 1));
    return gave_up_ = true;
  }

 private:
  const Watch& watch_;
  unsigned polls_ = 0;
  bool gave_up_ = false;
  int peer_ = -1;
  Word step_ = 0, since_ = 0;
};

}  // namespace ccl
