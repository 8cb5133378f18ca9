#pragma once

#include <ccl/types/word.hpp>

namespace ccl::detail {

/// What a lane that gave up leaves for the host: because of whom, and why.
struct LaneFailure {
  enum Why : Word {
    late,      // `peer` owes something, and the deadline passed
    too_many,  // rows that this rank has for `peer`, or `peer` for it: see `count` and `stride`
    refused,   // `peer` has too many for someone, and sent nothing to anybody
    no_wire    // from `peer`, or to it where `sends`: nobody has connected it
  };
  Word peer = 0;  // rank + 1, written last; 0: nobody gave up
  Word step = 0;  // of `late`: steps of that wire done before
  Word why = late;
  Word count = 0;   // of `too_many`: rows
  Word stride = 0;  // and as many as there is room for
  Word sends = 0;   // 1: they were to go to `peer`, or the wire that is not there goes to it
};

/// For whom lanes wait at present, for diagnosis: they write it at times while they wait, in words
/// of their own, and clear it when they have got on. Of several lanes, the one that wrote last.
struct WaitRecord {
  Word peer = 0;    // rank + 1; 0: nobody waits, or not for long
  Word step = 0;    // steps of that wire done before
  Word ticket = 0;  // of the operation, as in `AbortWatch`
};

/// How long lanes wait. Lives in memory that lanes and the host share.
struct AbortWatch {
  const Word* stop = nullptr;  // 0 while all is well: see `Status`
  LaneFailure* lane_failure = nullptr;   // written once, by the first lane whose deadline passes
  Word deadline_ns = 0;        // of one wait without progress; 0: for ever
  WaitRecord* waits = nullptr;  // null: not kept
  Word ticket = 0;             // the operation's, in the rank's journal
};

/// Ends every spin loop that its peers do not end. A launch that gave up once runs through without
/// waiting again. `Memory::pause()` is called on each failed poll; the status word and the clock
/// are looked at only every `check_every`-th.
template <class Memory>
class SpinWait {
 public:
  /// `watch` must outlive it: kernels leave it where their arguments are, not in registers.
  explicit CCL_HD SpinWait(const AbortWatch& watch) : watch_{watch} {}

  SpinWait(const SpinWait&) = delete;
  SpinWait& operator=(const SpinWait&) = delete;
  /// Nobody waits here any more; where it gave up, what was waited for stays to be read.
  CCL_HD ~SpinWait() {
    if (since_ != 0 && !failed() && watch_.waits != nullptr) {
      Memory::store_relaxed(&watch_.waits->peer, Word{0});
    }
  }

  CCL_HD constexpr bool failed() const { return lane_failure_; }

  /// Counts a failed poll for something that `peer` owes us. True: give up. A lane that cannot tell
  /// who is late says -1 and leaves the deadline to others.
  CCL_HD bool ends(int peer, Word step) {
    if (!failed()) Memory::pause();
    if (++polls_ % Memory::check_every == 0) {
      since_ = look(watch_, since_, peer, step);
      lane_failure_ = since_ == never;
    }
    return failed();
  }
  /// Gives up before any wait: there is no such wire. One lane.
  CCL_HD void give_up_without_wire(int peer, bool sends) {
    lane_failure_ = true;
    since_ = never;
    if (Memory::load_relaxed(&watch_.lane_failure->peer) != 0) return;
    Memory::store_relaxed(&watch_.lane_failure->sends, Word{sends});
    Memory::store_relaxed(&watch_.lane_failure->why, Word{LaneFailure::no_wire});
    Memory::store_release(&watch_.lane_failure->peer, Word(peer + 1));
  }

 private:
  static constexpr Word never = ~Word{0};  // gave up
  static constexpr int tick_bits = 20;     // of nanoseconds: a millisecond

  /// What `since_` is to be. A function of its own, called once in thousands of polls: in the
  /// midst of every wait its state made LL128's ring spill registers.
  CCL_HD_APART static Word look(const AbortWatch& watch, Word since, int peer, Word step) {
    if (since == never || Memory::load_relaxed(watch.stop) != 0) return never;
    if (Memory::load_relaxed(&watch.lane_failure->peer) != 0) return never;
    if (peer < 0) return since;
    if (WaitRecord* const waits = watch.waits; waits != nullptr) {
      Memory::store_relaxed(&waits->step, step);
      Memory::store_relaxed(&waits->ticket, watch.ticket);
      Memory::store_relaxed(&waits->peer, Word(peer + 1));
    }
    const unsigned now = unsigned(Memory::now_ns() >> tick_bits) & 0x7fff'ffffu;
    // Who and where, well mixed: two waits that look alike would share a deadline.
    const unsigned what = (unsigned(step) * 64 + unsigned(peer)) * 0x9e37'79b1u;
    constexpr unsigned begun = 1u << 31;  // so that no wait is 0
    if (since == 0 || unsigned(since >> 32) != what) return Word{what} << 32 | begun | now;
    const unsigned gone = (now - unsigned(since)) & ~begun;
    if (watch.deadline_ns == 0 || Word{gone} << tick_bits < watch.deadline_ns) return since;
    Memory::store_relaxed(&watch.lane_failure->step, step);
    Memory::store_release(&watch.lane_failure->peer, Word(peer + 1));
    return never;
  }

  const AbortWatch& watch_;
  unsigned polls_ = 0;
  Word since_ = 0;        // what is waited for, mixed, and the tick since when; 0: nothing for long
  bool lane_failure_ = false;  // `since_ == never`, which steps ask all the time
};

}  // namespace ccl::detail
