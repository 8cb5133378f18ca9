#pragma once

#include <ccl/types.hpp>

namespace ccl {

/// What a lane that ran out of patience leaves for the host: who it waited for, and where.
struct GaveUp {
  Word peer = 0;  // rank + 1; 0: nobody's deadline passed
  Word step = 0;  // steps of that wire done before
};

/// For whom lanes wait at present, for diagnosis: they write it at times while they wait, in words
/// of their own, and clear it when they have got on. Of several lanes, the one that wrote last.
struct LaneWaits {
  Word peer = 0;    // rank + 1; 0: nobody waits, or not for long
  Word step = 0;    // steps of that wire done before
  Word ticket = 0;  // of the operation, as in `Watch`
};

/// How long lanes wait. Lives in memory that lanes and the host share.
struct Watch {
  const Word* stop = nullptr;  // 0 while all is well: see `Status`
  GaveUp* gave_up = nullptr;   // written once, by the first lane whose deadline passes
  Word deadline_ns = 0;        // of one wait without progress; 0: for ever
  LaneWaits* waits = nullptr;  // null: not kept
  Word ticket = 0;             // the operation's, in the rank's journal
};

/// Ends every spin loop that its peers do not end. A launch that gave up once runs through without
/// waiting again. `Memory::pause()` is called on each failed poll; the status word and the clock
/// are looked at only every `check_every`-th.
template <class Memory>
class Patience {
 public:
  /// `watch` must outlive it: kernels leave it where their arguments are, not in registers.
  explicit CCL_HD Patience(const Watch& watch) : watch_{watch} {}

  Patience(const Patience&) = delete;
  Patience& operator=(const Patience&) = delete;
  /// Nobody waits here any more; where it gave up, what was waited for stays to be read.
  CCL_HD ~Patience() {
    if (since_ != 0 && !gave_up_ && watch_.waits != nullptr) {
      Memory::store_relaxed(&watch_.waits->peer, Word{0});
    }
  }

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
    if (watch_.waits != nullptr) {
      Memory::store_relaxed(&watch_.waits->step, step);
      Memory::store_relaxed(&watch_.waits->ticket, watch_.ticket);
      Memory::store_relaxed(&watch_.waits->peer, Word(peer + 1));
    }
    const Word now = Memory::now_ns();
    if (since_ == 0 || step != step_ || peer != peer_) {
      since_ = now;
      step_ = step;
      peer_ = peer;
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
