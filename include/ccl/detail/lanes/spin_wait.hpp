#pragma once

#include <ccl/types/macros.hpp>
#include <ccl/types/word.hpp>

CCL_ANY_SPACE_BEGIN

namespace ccl::detail {

/// Failure of a lane, written for the host: the peer and the reason.
struct LaneFailure {
  enum Why : Word {
    late,      // data or credit of `peer` did not arrive before the deadline
    too_many,  // more rows for or from `peer` than there is room for: see `count` and `stride`
    refused,   // `peer` has too many rows for some rank and sent nothing
    no_wire,   // the wire from `peer`, or to it if `sends`, is not connected
    unread,    // memory of `peer` could not be read: `count` is the errno
    // Found by `Checked`:
    not_a_number,  // element `step` of the input of `peer`, this rank, is the first NaN
    other_call,    // `peer` makes another call: its `CallWord` is `step`
    // The receive buffer of `peer` is elsewhere: its `WindowPlaceWord` is `step`, this rank's is
    // `count`.
    other_place,
    // Wrong calls in the user's kernel: `count` is what it gave, and `stride` the limit.
    no_block,        // a launch with more blocks than the team has
    no_rank,         // a peer that is no other rank
    no_signal,       // a signal that the team does not have
    no_counter,      // a counter that the team does not have
    no_slot,         // a slot that the packets do not have
    outside_window,  // bytes of a put past the end of the window of `peer`
    misaligned,      // a tile that is not at a multiple of 16 bytes
    no_value,        // a value of a signal that is not from 1 to 2^32 - 1
    no_blocks,       // a count of other than 1 to all blocks of the launch
    few_ranks,       // `Tiles` that are compiled for fewer ranks than the team has
    not_near         // a `Team` with ranks of other hosts
  };
  Word peer = 0;  // rank + 1, written last; 0: no failure
  Word step = 0;  // `late`: steps done on that wire
  Word why = late;
  Word count = 0;   // `too_many`: rows; checks: `CallWord` of this rank
  Word stride = 0;  // `too_many`: room, in rows
  Word sends = 0;   // 1: the rows or the missing wire go to `peer`
};

/// Peer that lanes wait for, kept for diagnosis. Lanes write it at times while they wait and clear
/// it when their part of the launch ends. If several lanes wait, the last write stays. It also
/// stays when a wait ends, and a lane then runs a functor; but `seen_ns` stands still meanwhile.
struct WaitRecord {
  Word peer = 0;     // rank + 1; 0: no lane has waited for long
  Word step = 0;     // steps done on that wire
  Word ticket = 0;   // of the operation, as in `AbortWatch`
  Word seen_ns = 0;  // by the lane's clock, at its latest look; of CPU lanes, at the latest poll
};

struct PhaseLog;

/// Limits of the waits of lanes. Lives in memory that lanes and the host share.
struct AbortWatch {
  const Word* stop = nullptr;           // not 0: stop (see `Status`)
  LaneFailure* lane_failure = nullptr;  // written once, by the first lane whose deadline passes
  Word deadline_ns = 0;                 // of one wait without progress; 0: no limit
  WaitRecord* waits = nullptr;          // null: not kept
  Word ticket = 0;                      // of the operation, in the flight recorder
  PhaseLog* phases = nullptr;           // null: lanes note no times
};

/// Reports what lanes have found in calls or data. The host reads it as a failure of the lanes.
template <class Memory>
CCL_HD void report_check(const AbortWatch& watch, LaneFailure::Why why, int peer, Word step,
                         Word count) {
  LaneFailure* const found = watch.lane_failure;
  if (Memory::load_relaxed(&found->peer) != 0) return;
  Memory::store_relaxed(&found->step, step);
  Memory::store_relaxed(&found->count, count);
  Memory::store_relaxed(&found->why, Word(why));
  Memory::store_release(&found->peer, Word(peer + 1));
}

/// Ends every spin loop that its peers do not end. After the first failure a launch runs to its end
/// without further waits. Each failed poll calls `Memory::pause()`, the first of a
/// wait `pause_briefly` where there is one; every `check_every`-th also reads the status word and
/// the clock, and so does one whose pause took milliseconds (`paused_for_long`). Where a pause may
/// sleep (`pause_sleeps`), the first poll looks for an earlier failure: an algorithm may have many
/// waits left, each with a `SpinWait`.
template <class Memory>
class SpinWait {
 public:
  /// `watch` must outlive it. Kernels keep it with their arguments, not in registers.
  explicit CCL_HD SpinWait(const AbortWatch& watch) : watch_{watch} {}

  SpinWait(const SpinWait&) = delete;
  SpinWait& operator=(const SpinWait&) = delete;
  /// Clears the wait record, except after a failure.
  CCL_HD ~SpinWait() {
    if (since_ != 0 && !failed() && watch_.waits != nullptr) {
      Memory::store_relaxed(&watch_.waits->peer, Word{0});
    }
  }

  CCL_HD constexpr bool failed() const { return failed_; }

  /// Counts a failed poll of data or credit of `peer`. True if the wait has failed. A lane that
  /// does not know the late peer passes -1, and other lanes check the deadline.
  CCL_HD bool ends(int peer, Word step) {
    if constexpr (requires { Memory::pause_sleeps; }) {
      if (polls_ == 0 && launch_failed(watch_)) since_ = never, failed_ = true;
    }
    if (!failed()) pause();
    bool is_due = ++polls_ % Memory::check_every == 0;
    if constexpr (requires { Memory::paused_for_long(); }) {
      is_due = Memory::paused_for_long() || is_due;
    }
    if (is_due) {
      since_ = look(watch_, since_, peer, step);
      failed_ = since_ == never;
    } else if constexpr (requires { Memory::pause_sleeps; }) {
      // A CPU lane may take seconds from look to look if other threads have its core.
      if (since_ != 0 && !failed() && watch_.waits != nullptr) {
        Memory::store_relaxed(&watch_.waits->seen_ns, Memory::now_ns());
      }
    }
    return failed();
  }
  /// Ends the current wait, which succeeded: another wait for the same peer and step has its own
  /// deadline.
  CCL_HD void restart() {
    if (!failed()) since_ &= 0xffff'ffffu;
  }
  /// Fails without a wait, because the wire is not connected. One lane.
  CCL_HD void give_up_without_wire(int peer, bool sends) {
    failed_ = true;
    since_ = never;
    if (Memory::load_relaxed(&watch_.lane_failure->peer) != 0) return;
    Memory::store_relaxed(&watch_.lane_failure->sends, Word{sends});
    Memory::store_relaxed(&watch_.lane_failure->why, Word{LaneFailure::no_wire});
    Memory::store_release(&watch_.lane_failure->peer, Word(peer + 1));
  }
  /// Fails because the memory of `peer` could not be read. One CPU lane.
  void give_up_unread(int peer, Word step, int os_code) {
    failed_ = true;
    since_ = never;
    if (Memory::load_relaxed(&watch_.lane_failure->peer) != 0) return;
    Memory::store_relaxed(&watch_.lane_failure->step, step);
    Memory::store_relaxed(&watch_.lane_failure->count, Word(os_code));
    Memory::store_relaxed(&watch_.lane_failure->why, Word{LaneFailure::unread});
    Memory::store_release(&watch_.lane_failure->peer, Word(peer + 1));
  }

 private:
  CCL_HD void pause() const {
    if constexpr (requires { Memory::pause_briefly(); }) {
      polls_ < Memory::brief_pauses ? Memory::pause_briefly() : Memory::pause();
    } else {
      Memory::pause();
    }
  }

  static constexpr Word never = ~Word{0};  // failed
  static constexpr int tick_bits = 20;     // 2^20 ns: about 1 ms

  /// True if a lane of this launch has failed, or the communicator is stopped.
  static bool launch_failed(const AbortWatch& watch) {
    if (watch.stop != nullptr && Memory::load_relaxed(watch.stop) != 0) return true;
    return watch.lane_failure != nullptr && Memory::load_relaxed(&watch.lane_failure->peer) != 0;
  }
  /// Returns the next value of `since_`. Not inlined: in every wait, its state made LL128's ring
  /// spill registers, and it runs once in many polls.
  CCL_HD_APART static Word look(const AbortWatch& watch, Word since, int peer, Word step) {
    if (since == never || Memory::load_relaxed(watch.stop) != 0) return never;
    if (Memory::load_relaxed(&watch.lane_failure->peer) != 0) return never;
    if (peer < 0) return since;
    const Word now_ns = Memory::now_ns();
    if (WaitRecord* const waits = watch.waits; waits != nullptr) {
      Memory::store_relaxed(&waits->seen_ns, now_ns);
      Memory::store_relaxed(&waits->step, step);
      Memory::store_relaxed(&waits->ticket, watch.ticket);
      Memory::store_relaxed(&waits->peer, Word(peer + 1));
    }
    const unsigned now = unsigned(now_ns >> tick_bits) & 0x7fff'ffffu;
    // Hash of peer and step: two waits with one hash share a deadline. Never 0, as after `restart`.
    const unsigned what = ((unsigned(step) * 128 + unsigned(peer)) * 0x9e37'79b1u) | 1u;
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
  Word since_ = 0;       // hash of the wait and the tick at its start; 0: no long wait
  bool failed_ = false;  // `since_ == never`, which every step reads
};

}  // namespace ccl::detail

CCL_ANY_SPACE_END
