#pragma once

#include <ccl/detail/base/min_max.hpp>
#include <ccl/detail/lanes/turn_runs.hpp>
#include <ccl/types/macros.hpp>
#include <ccl/types/word.hpp>

CCL_ANY_SPACE_BEGIN

namespace ccl::detail {

/// Runs that travel through slots of peers' memory, and the words that count the slots. `to` of a
/// run is the first of its adjacent slots.
struct SlotRuns {
  struct Counts {
    Word* reported;       // written by the sender: flag | slots that it has filled
    const Word* drained;  // flag | slots that the receiver has emptied
    Word flag;            // high half of both words
    int peer;             // receiver
  };
  TurnRuns runs;
  Counts counts[TurnRuns::most];
  int slot_count = 1;    // slots of a run
  Index slot_bytes = 0;  // a multiple of 16

  CCL_HD void add(char* slots, const char* from, Index bytes, const Counts& words) {
    counts[runs.count] = words;
    runs.add(slots, from, bytes);
  }
};

/// Position among the pieces of such runs. Runs take turns slot by slot, and a slot is filled piece
/// by piece.
class SlotPieces {
 public:
  CCL_HD SlotPieces(const SlotRuns& slots, Index piece)
      : slots_{slots}, turn_{slots.runs, 0, slots.slot_bytes}, piece_{piece} {}

  CCL_HD bool left() const { return turn_.left(); }
  /// Moves to the next piece, or past the last one.
  CCL_HD void next() {
    in_ += piece_;
    if (in_ < slot_left()) return;
    in_ = 0;
    turn_.next();
    slot_ = turn_.at() / slots_.slot_bytes;
  }
  CCL_HD int run() const { return turn_.run(); }
  /// Returns the number of the slot in its run, from 0 on.
  CCL_HD Index slot() const { return slot_; }
  CCL_HD bool begins_slot() const { return in_ == 0; }
  CCL_HD bool ends_slot() const { return in_ + piece_ >= slot_left(); }
  CCL_HD const char* from() const { return slots_.runs.run[run()].from + turn_.at() + in_; }
  CCL_HD char* to() const {
    return slots_.runs.run[run()].to + slot_ % slots_.slot_count * slots_.slot_bytes + in_;
  }
  CCL_HD Index bytes() const { return min_of(slot_left() - in_, piece_); }

 private:
  CCL_HD Index slot_left() const {
    return min_of(slots_.runs.run[run()].bytes - turn_.at(), slots_.slot_bytes);
  }

  const SlotRuns& slots_;
  TurnCursor turn_;
  Index piece_, slot_ = 0, in_ = 0;
};

}  // namespace ccl::detail

CCL_ANY_SPACE_END
